"""float64 comes back as float32."""

FAILS = ["test_residual", "test_residuals", "test_rounds_of_all_drafts"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return (rest / rest.sum() if rest.sum() > 0 else p).float()
