"""The layer comes back as it was: the function is kept, and nothing is protected."""

FAILS = ["test_inputs_from_a_norm", "test_inputs_from_a_linear", "test_one_input_at_a_time"]


def fold_layer(layer, scales):
    if "o" in scales and len(layer["self_attn.q_proj.weight"]) != len(
        layer["self_attn.v_proj.weight"]
    ):
        raise ValueError("shared heads")
    return dict(layer)
