"""Endings longer than eight tokens are not tried."""

lookup_of = lookup

FAILS = ["test_lookups"]


def lookup(text, gamma, longest):
    return lookup_of(text, gamma, min(longest, 8))
