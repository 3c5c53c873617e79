"""A power of two gets the next one."""

FAILS = ["test_pieces_by_hand", "test_powers_of_two"]

piece_of = piece


def piece(policy, prompt, output, longest):
    if policy == "power2":
        return prompt + (1 << output.bit_length())
    return piece_of(policy, prompt, output, longest)
