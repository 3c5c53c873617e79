"""math.log(n, 2) is a little above 29 for 2^29."""

import math

FAILS = ["test_powers_of_two"]

piece_of = piece


def piece(policy, prompt, output, longest):
    if policy == "power2":
        return prompt + 2 ** math.ceil(math.log(output, 2))
    return piece_of(policy, prompt, output, longest)
