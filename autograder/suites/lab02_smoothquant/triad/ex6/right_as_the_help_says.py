"""The help of the card, word for word."""


def sweep(x, weights, alphas, activations):
    x, weights = x.float(), [w.float() for w in weights]
    x_max = x.abs().amax(tuple(range(x.ndim - 1)))
    errors = []
    for alpha in alphas:
        s = smoothing_scales(x_max, weights, alpha)  # noqa: F821 -- exercise 4
        error = size = 0
        for w in weights:
            y = w8a8_linear(x / s, w * s, None, activations)  # noqa: F821 -- exercise 2
            error += (y - x @ w.T).square().sum()
            size += (x @ w.T).square().sum()
        errors.append(float(error / size))
    return errors
