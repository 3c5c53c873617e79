"""What `autograder grade` and `autograder triad` do, and how they show it."""
