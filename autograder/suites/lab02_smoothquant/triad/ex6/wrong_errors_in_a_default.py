"""The list of errors is a default argument: it keeps those of earlier calls."""

FAILS = ["test_even_channels", "test_errors_against_float64"]


def sweep(x, weights, alphas, activations, errors=[]):  # noqa: B006 -- the mistake
    x, weights = x.float(), [w.float() for w in weights]
    exact = [x @ w.T for w in weights]
    size = sum(y.square().sum() for y in exact)
    x_max = x.abs().flatten(0, -2).amax(dim=0)
    for alpha in alphas:
        s = smoothing_scales(x_max, weights, alpha)  # noqa: F821
        rounded = [w8a8_linear(x / s, w * s, None, activations) for w in weights]  # noqa: F821
        pairs = list(zip(rounded, exact, strict=True))
        error = sum((a - b).square().sum() for a, b in pairs)
        errors.append((error / size).item())
    return errors
