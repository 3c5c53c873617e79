"""Errors that are told in one line, because other arguments or files mend them."""


class UsageError(Exception):
    """A command was called with arguments that do not fit."""
