"""float64 comes back as float32."""

FAILS = ["test_residual"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return (rest / rest.sum() if rest.sum() > 0 else p).float()
