"""Only s <= 0 is refused: NaN and infinity pass."""

FAILS = ["test_scales_that_are_none"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != w.shape[1:] or (s <= 0).any():
        raise ValueError(s.shape)
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s  # noqa: F821
