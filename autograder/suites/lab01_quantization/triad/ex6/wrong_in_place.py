"""Quantizes the model that came in and returns it."""

import copy

FAILS = ["test_modes_stay", "test_llama"]

_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    quantized, total = _right(model, bits, granularity)
    model.load_state_dict(copy.deepcopy(quantized.state_dict()))
    return model, total
