"""A given x_max is used whatever `activations` says."""

FAILS = ["test_who_shares_a_scale", "test_every_kind_against_integers"]


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations not in ("token", "tensor", "static") or (
        activations == "static" and x_max is None
    ):
        raise ValueError(activations)
    if x_max is None and activations == "token":
        x_max = x.abs().amax(dim=-1, keepdim=True)
    elif x_max is None:
        x_max = x.abs().amax()
    x_codes, x_scale = int8_codes(x, x_max)  # noqa: F821
    w_codes, w_scale = int8_codes(w, w.abs().amax())  # noqa: F821
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale)
    return y if bias is None else y + bias.float()
