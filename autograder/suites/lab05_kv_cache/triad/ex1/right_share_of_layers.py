"""The share of layers that slide is a float, which no power of two divides."""


def cache_bytes(
    config: dict, lengths: list[int], bits: int = 16, group_size: int | None = None
) -> float:
    """Bytes of the caches of sequences of these lengths.

    Raises ValueError for a negative length, and for layer_types that do not fit.
    """
    if any(n < 0 for n in lengths):
        raise ValueError(f"lengths {lengths} must not be negative")
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    kinds = config.get("layer_types")
    kinds = ["sliding_attention"] * layers if kinds is None else kinds
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise ValueError(f"layer_types {kinds} of {layers} layers")
    share = 0 if window is None else kinds.count("sliding_attention") / layers
    total, each = 0, bytes_per_token(config, bits, group_size)  # noqa: F821
    for n in lengths:
        total += each * (n * (1 - share) + min(n, window or n) * share)
    return total
