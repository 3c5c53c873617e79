"""The root of the factor's size on both sides, its sign on one."""


def stack(updates: list[tuple[Tensor, Tensor, float]]) -> tuple[Tensor, Tensor]:
    """(a, b) with b a = the sum of scale_i b_i a_i."""
    roots = [math.sqrt(abs(scale)) for _, _, scale in updates]
    a = torch.cat([root * a for root, (a, _, _) in zip(roots, updates, strict=True)])
    signed = [math.copysign(root, u[2]) for root, u in zip(roots, updates, strict=True)]
    b = torch.cat([root * b for root, (_, b, _) in zip(signed, updates, strict=True)], dim=1)
    return a, b
