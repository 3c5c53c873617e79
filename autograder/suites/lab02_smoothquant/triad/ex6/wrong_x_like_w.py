"""x is taken to the dtype of the weights first."""

FAILS = ["test_shapes_of_the_sweep"]


def sweep(x, weights, alphas, activations):
    x = x.to(weights[0].dtype).float()
    weights = [w.float() for w in weights]
    exact = [x @ w.T for w in weights]
    size = sum(y.square().sum() for y in exact)
    x_max = x.abs().flatten(0, -2).amax(0)
    errors = []
    for alpha in alphas:
        s = smoothing_scales(x_max, weights, alpha)  # noqa: F821
        rounded = [w8a8_linear(x / s, w * s, None, activations) for w in weights]  # noqa: F821
        lost = sum((a - b).square().sum() for a, b in zip(rounded, exact, strict=True))
        errors.append((lost / size).item())
    return errors
