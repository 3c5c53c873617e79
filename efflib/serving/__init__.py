"""Serving: what a step of generation costs, and what bounds it."""
