"""Counts what stays in float with the 32 bits it has in memory."""

FAILS = ["test_total_of_a_small_model", "test_total_counts_everything"]


_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    quantized, total = _right(model, bits, granularity)
    changed = dict(model.named_parameters())
    rest = sum(p.numel() for n, p in quantized.named_parameters() if bool((p == changed[n]).all()))
    return quantized, total + 16 * rest
