"""Tiles alive at once in a program: the meter's measure of on-chip memory."""

import meter_kernels as kernels
import pytest
import torch
from triton.runtime.errors import InterpreterError

from efflib.meter import Meter


def test_exponentials_and_live_tiles():
    n = 64
    a, b, c, out = torch.linspace(-2, 2, n).repeat(4, 1)
    with Meter() as m:
        kernels.sum_of_three[(1,)](a, b, c, out, n)
    exact = torch.exp(a.double() ** 2) + torch.exp2(b.double()) + c
    # exp(4) times the rounding of 4 and exp's own, up to 5 each, and two sums: numbers below 64
    assert (out - exact).abs().max() <= 16 * 64 * 2.0**-24
    assert m.exponentials == 2 * n and m.largest_tile == n
    # i, a, b, c stay; exp(a^2), exp2(b) and their sum meet in one expression
    assert m.peak_live_bytes == 7 * 4 * n
    with Meter() as double:
        kernels.sum_of_three[(1,)](*torch.randn(4, 2 * n), 2 * n)
    assert double.peak_live_bytes == 2 * m.peak_live_bytes


def test_views_of_one_tile_are_alive_once():
    x, out = torch.randn(32), torch.empty(32)
    with Meter() as m:
        kernels.shows_twice[(1,)](x, out, 32)
    assert m.largest_tile == 32 * 32
    assert m.peak_live_bytes == 2 * 32 * 4  # i and x


def test_live_tiles_are_those_of_one_program():
    x = torch.randn(64)
    peaks = []
    for programs in (1, 4):
        with Meter() as m:
            kernels.copy[(programs,)](x, torch.empty(64), 16 * programs, 16)
        peaks.append(m.peak_live_bytes)
    assert peaks[0] == peaks[1] > 0


def test_tiles_of_a_launch_that_failed_are_not_alive_in_the_next():
    x, out = torch.randn(64), torch.empty(64)
    with Meter() as alone:
        kernels.copy[(1,)](x, out, 16, 16)
    with Meter() as m:
        with pytest.raises(InterpreterError) as kept:  # its traceback holds the tiles
            kernels.copy[(1,)](x, out[:8], 16, 16)
        kernels.copy[(1,)](x, out, 16, 16)
    assert "OutOfBounds" in str(kept.value) and m.peak_live_bytes == alone.peak_live_bytes
