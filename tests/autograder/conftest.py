"""Puts this folder on the path, for the helpers that several rooms share (toylab, handed_in)."""
