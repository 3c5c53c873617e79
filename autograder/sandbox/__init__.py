"""Runs student code where it can do no harm: bubblewrap, a wire, one worker inside."""
