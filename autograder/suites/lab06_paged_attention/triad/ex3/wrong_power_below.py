"""The power of two below the answer."""

FAILS = ["test_pieces_by_hand", "test_powers_of_two"]

piece_of = piece


def piece(policy, prompt, output, longest):
    if policy == "power2":
        return prompt + (1 << output.bit_length() - 1)
    return piece_of(policy, prompt, output, longest)
