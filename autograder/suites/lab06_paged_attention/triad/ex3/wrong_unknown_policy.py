"""Every other policy is the oracle."""

FAILS = ["test_pieces_by_hand", "test_powers_of_two"]

piece_of = piece


def piece(policy, prompt, output, longest):
    known = policy in ("maximum", "power2")
    return piece_of(policy if known else "oracle", prompt, output, longest)
