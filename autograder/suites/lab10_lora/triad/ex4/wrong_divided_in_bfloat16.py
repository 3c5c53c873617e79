"""The quotients are in the dtype of w."""

FAILS = ["test_bfloat16_and_views", "test_what_comes_back"]


def quantize_nf4(w: Tensor) -> tuple[Tensor, Tensor]:
    """(codes [n] uint8, absmax [ceil(n / 64)] float32)."""
    flat = w.flatten()
    blocks = F.pad(flat, (0, -len(flat) % 64)).reshape(-1, 64)
    absmax = blocks.abs().amax(1)
    scaled = blocks / torch.where(absmax > 0, absmax, 1.0)[:, None]
    codes = (scaled.float()[..., None] - nf4_levels()).abs().argmin(-1)
    return codes.flatten()[: len(flat)].to(torch.uint8), absmax.float()
