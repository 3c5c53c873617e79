"""Measures the input once for each of its shapes."""

FAILS = ["test_who_shares_a_scale", "test_every_kind_against_integers"]

_tops = {}


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations == "token":
        x_max = x.abs().amax(dim=-1, keepdim=True)
    elif activations == "tensor":
        x_max = _tops.setdefault(x.shape, x.abs().amax())
    elif activations != "static" or x_max is None:
        raise ValueError(activations)
    x_codes, x_scale = int8_codes(x, x_max)  # noqa: F821
    w_codes, w_scale = int8_codes(w, w.abs().amax())  # noqa: F821
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale)
    return y if bias is None else y + bias.float()
