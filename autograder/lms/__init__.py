"""What goes back to a course system: grades in its own columns, feedback in one zip."""
