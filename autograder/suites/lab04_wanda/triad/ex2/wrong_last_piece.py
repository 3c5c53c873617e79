"""Tokens are taken in pieces of 1000, and those behind the last whole piece are left out."""

FAILS = ["test_norms_of_any_arrangement"]


def input_norms(x):
    x = x.float().flatten(0, -2)
    pieces = x[: len(x) // 1000 * 1000].split(1000) if len(x) > 1000 else [x]
    return sum(piece.square().sum(0) for piece in pieces).sqrt()
