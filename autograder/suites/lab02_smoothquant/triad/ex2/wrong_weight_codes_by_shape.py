"""Rounds each weight once, but knows it by its shape."""

FAILS = ["test_outputs_are_integer_sums", "test_every_kind_against_integers"]

_codes = {}


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations == "token":
        x_max = x.abs().amax(dim=-1, keepdim=True)
    elif activations == "tensor":
        x_max = x.abs().amax()
    elif activations != "static" or x_max is None:
        raise ValueError(activations)
    x_codes, x_scale = int8_codes(x, x_max)  # noqa: F821
    if w.shape not in _codes:
        _codes[w.shape] = int8_codes(w, w.abs().amax())  # noqa: F821
    w_codes, w_scale = _codes[w.shape]
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale)
    return y if bias is None else y + bias.float()
