"""Each weight has an s of its own, as if X could be divided twice."""

FAILS = ["test_all_weights_count", "test_errors_against_float64"]


def sweep(x, weights, alphas, activations):
    x, weights = x.float(), [w.float() for w in weights]
    exact = [x @ w.T for w in weights]
    size = sum(y.square().sum() for y in exact)
    x_max = x.abs().flatten(0, -2).amax(dim=0)
    errors = []
    for alpha in alphas:
        rounded = [_one(x, x_max, w, alpha, activations) for w in weights]  # noqa: F821
        pairs = list(zip(rounded, exact, strict=True))
        error = sum((a - b).square().sum() for a, b in pairs)
        errors.append((error / size).item())
    return errors


def _one(x, x_max, w, alpha, activations):
    s = smoothing_scales(x_max, [w], alpha)  # noqa: F821
    return w8a8_linear(x / s, w * s, None, activations)  # noqa: F821
