"""The power of two of prompt and answer together."""

FAILS = ["test_pieces_by_hand", "test_powers_of_two"]

piece_of = piece


def piece(policy, prompt, output, longest):
    if policy == "power2":
        return 1 << (prompt + output - 1).bit_length()
    return piece_of(policy, prompt, output, longest)
