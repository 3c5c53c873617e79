"""Pieces are cut at the longest sequence."""

FAILS = ["test_pieces_by_hand", "test_powers_of_two"]

piece_of = piece


def piece(policy, prompt, output, longest):
    return min(longest, piece_of(policy, prompt, output, longest))
