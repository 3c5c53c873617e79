"""The answer for a model is kept, and comes back for any other bits and granularity."""

FAILS = ["test_total_of_a_small_model", "test_total_counts_everything"]

_right = quantize_model  # noqa: F821 -- the solution of exercise 6
_kept = []


def quantize_model(model, bits, granularity):
    for known, answer in _kept:
        if known is model:
            return answer
    _kept.append((model, _right(model, bits, granularity)))
    return _kept[-1][1]
