"""What grading knows of a lab: its files, points, tests, and hashes of all of them."""
