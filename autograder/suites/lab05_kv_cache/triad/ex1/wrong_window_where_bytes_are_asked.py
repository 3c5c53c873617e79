"""A token of a layer with a window is not counted among the bytes of a token."""

FAILS = ["test_layers_that_differ"]


whole = bytes_per_token  # noqa: F821


def bytes_per_token(config: dict, bits: int = 16, group_size: int | None = None) -> float:
    kinds = config.get("layer_types")
    share = 1 if not kinds else kinds.count("full_attention") / len(kinds)
    return whole(config, bits, group_size) * share
