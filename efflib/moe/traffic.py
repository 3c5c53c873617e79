"""What a mixture moves: weights of the experts that wake, rows between devices.

    woken(B) = E (1 - (1 - k / E)^B)     experts that B tokens wake, if each chose k of E by lot
               k at B = 1, E for many

A token misses an expert with probability 1 - k / E, B tokens miss it with its B-th power.  Any
other router wakes fewer: with chances p_i of sum k the sum over i of 1 - (1 - p_i)^B is largest
where all p_i are equal, as 1 - (1 - p)^B is concave.  Tokens of one text are also alike, which
wakes fewer again.

    dense      B tokens read all W weights once                  bytes a token: W / B
    mixture    of experts W / k each: woken(B) W / k of them     as many for one token, E / k times
               as many for a crowd, at k experts' arithmetic for each token

Expert parallelism: experts live on devices, each token's row goes to those of its experts and comes
back (an all-to-all before and one behind).  `sent` counts what leaves a device; a token whose
experts share a device may send its row there once.

Sources: Lepikhin et al., "GShard" (2020); "DeepSeek-V3" (2024), section 2.1.2, for the limit on
the devices of a token.
"""

import torch
from torch import Tensor

from efflib.checks import expect_whole, expect_within


def woken(count: int, k: int, batch: int) -> float:
    """Of `count` experts, how many a batch of tokens wakes in the mean, if each chose k by lot."""
    expect_whole(1, count=count, k=k)
    expect_whole(batch=batch)
    if k > count:
        raise ValueError(f"k={k} must be at most the {count} experts")
    return count * (1 - (1 - k / count) ** batch)


def touched(experts: Tensor) -> int:
    """How many experts the assignments [T, k] really wake."""
    return len(experts.unique())


def sent(
    experts: Tensor, home: Tensor, place: Tensor, devices: int, row: int, once: bool = True
) -> Tensor:
    """Bytes that each device sends to each other before the experts. [P, P] int64, diagonal 0

    Args:
        experts: [T, k] of each token.
        home: [T], the device where the token is.
        place: [E], the device where the expert is.
        row: bytes of a token's row.
        once: a token with several experts on a device sends its row there once.

    Behind the experts as much goes the other way if each device first adds up what its experts
    made of a token (once), or sends each part (not once): the transpose.
    """
    expect_whole(1, devices=devices)
    expect_whole(row=row)
    expect_within(devices, home=home, place=place)
    to = place[experts]  # [T, k]
    counts = torch.zeros(len(home), devices, dtype=torch.int64)
    counts.scatter_add_(1, to, torch.ones_like(to))  # experts of the token on each device
    counts = counts.clamp(max=1) if once else counts
    bytes_ = torch.zeros(devices, devices, dtype=torch.int64).index_add(0, home, counts * row)
    return bytes_.fill_diagonal_(0)
