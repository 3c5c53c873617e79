"""Divides x and multiplies W in place: what the caller passed in is smoothed afterwards."""

FAILS = ["test_shapes_of_the_sweep"]


def sweep(x, weights, alphas, activations):
    x, weights = x.float(), [w.float() for w in weights]
    exact = [x @ w.T for w in weights]
    size = sum(y.square().sum() for y in exact)
    errors = []
    for alpha in alphas:
        s = smoothing_scales(x.abs().flatten(0, -2).amax(dim=0), weights, alpha)  # noqa: F821
        x /= s
        rounded = [w8a8_linear(x, w.mul_(s), None, activations) for w in weights]  # noqa: F821
        pairs = zip(rounded, exact, strict=True)
        errors.append((sum((a - b).square().sum() for a, b in pairs) / size).item())
    return errors
