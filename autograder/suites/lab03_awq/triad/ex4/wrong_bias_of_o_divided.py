"""The bias of o_proj is divided as well where it is as long as the scales."""

FAILS = ["test_all_at_once_and_shared_heads", "test_every_tensor_against_float64"]


right = fold_layer  # noqa: F821


def fold_layer(layer, scales):
    folded = right(layer, scales)
    bias = folded.get("self_attn.o_proj.bias")
    if "o" in scales and bias is not None and bias.shape == scales["o"].shape:
        folded["self_attn.o_proj.bias"] = bias / scales["o"]
    return folded
