"""Only the last 32 tokens are searched."""

lookup_of = lookup

FAILS = ["test_lookups"]


def lookup(text, gamma, longest):
    return lookup_of(text[-32:], gamma, longest)
