"""Runs the whole model once for every layer."""

FAILS = ["test_no_hook_stays", "test_side_effects"]

_right = channel_maxima  # noqa: F821 -- the solution of exercise 1


def channel_maxima(model, names, batches):
    return {name: _right(model, [name], batches)[name] for name in names}
