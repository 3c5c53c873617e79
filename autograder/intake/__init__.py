"""What students handed in: files, names, notebooks; nothing of it is trusted."""
