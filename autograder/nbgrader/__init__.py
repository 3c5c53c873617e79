"""nbgrader's gradebook, formgrader and commands on our results."""
