"""Bytes are kept, and found again by shape and width."""

FAILS = ["test_packed_bytes"]


_right = pack_codes  # noqa: F821 -- the solution of exercise 3
_kept = {}


def pack_codes(codes, bits):
    key = codes.shape, bits
    if key not in _kept:
        _kept[key] = _right(codes, bits)
    return _kept[key]
