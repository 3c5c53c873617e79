"""The largest value, with its sign."""

FAILS = ["test_nearest_in_float64", "test_the_nearest_level"]


def quantize_nf4(w: Tensor) -> tuple[Tensor, Tensor]:
    """(codes [n] uint8, absmax [ceil(n / 64)] float32)."""
    flat = w.float().flatten()
    blocks = F.pad(flat, (0, -len(flat) % 64)).reshape(-1, 64)
    absmax = blocks.amax(1)
    scaled = blocks / torch.where(absmax > 0, absmax, 1.0)[:, None]
    codes = (scaled[..., None] - nf4_levels()).abs().argmin(-1)  # [blocks, 64]
    return codes.flatten()[: len(flat)].to(torch.uint8), absmax
