"""The residual is not divided by its sum."""

FAILS = ["x"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest if rest.sum() > 0 else p
