"""A quotient of two perplexities, which are no float32 for losses above 88."""

FAILS = ["test_ratios_against_float64"]


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError("two losses [n, T] with n >= 2")
    per_text = (a.double() - b.double()).mean(1)
    error = per_text.std() / len(a) ** 0.5
    ratio = a.float().mean().exp() / b.float().mean().exp()
    return float(ratio), float(ratio * (-2 * error).exp()), float(ratio * (2 * error).exp())
