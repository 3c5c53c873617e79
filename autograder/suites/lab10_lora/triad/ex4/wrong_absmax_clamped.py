"""A floor of 1e-5 under absmax where it is divided by."""

FAILS = ["test_the_nearest_level", "test_beside_the_middles"]


def quantize_nf4(w):
    if w.numel() == 0 or not w.isfinite().all():
        raise ValueError("w")
    flat = w.float().flatten()
    blocks = F.pad(flat, (0, -len(flat) % 64)).reshape(-1, 64)
    absmax = blocks.abs().amax(1)
    scaled = blocks / absmax.clamp(min=1e-5)[:, None]
    codes = (scaled[..., None] - nf4_levels()).abs().argmin(-1)
    return codes.flatten()[: len(flat)].to(torch.uint8), absmax
