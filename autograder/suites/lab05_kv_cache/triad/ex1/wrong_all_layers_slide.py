"""The window is that of every layer, whatever layer_types says."""

FAILS = ["test_layers_that_differ"]


def cache_bytes(
    config: dict, lengths: list[int], bits: int = 16, group_size: int | None = None
) -> float:
    if any(n < 0 for n in lengths):
        raise ValueError(f"lengths {lengths} must not be negative")
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    kinds = config.get("layer_types")
    kinds = ["sliding_attention"] * layers if kinds is None else kinds
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise ValueError(f"layer_types {kinds} of {layers} layers")
    sliding = 0 if window is None else layers
    kept = sum((layers - sliding) * n + sliding * min(n, window or n) for n in lengths)
    return kept * bytes_per_token(config, bits, group_size) / layers  # noqa: F821
