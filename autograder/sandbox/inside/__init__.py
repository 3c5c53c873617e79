"""The only files of the grader's that enter a sandbox."""
