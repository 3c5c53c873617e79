"""Blocks of 32."""

FAILS = ["test_blocks_of_64", "test_the_nearest_level", "test_what_comes_back"]


def quantize_nf4(w: Tensor) -> tuple[Tensor, Tensor]:
    """(codes [n] uint8, absmax [ceil(n / 64)] float32)."""
    flat = w.float().flatten()
    blocks = F.pad(flat, (0, -len(flat) % 32)).reshape(-1, 32)
    absmax = blocks.abs().amax(1)
    scaled = blocks / torch.where(absmax > 0, absmax, 1.0)[:, None]
    codes = (scaled[..., None] - nf4_levels()).abs().argmin(-1)  # [blocks, 64]
    return codes.flatten()[: len(flat)].to(torch.uint8), absmax
