"""For each tensor its factors, of rows and of columns, from all scales; one pass over the layer."""

import torch

COLUMNS = {f"self_attn.{part}_proj": "qkv" for part in "qkv"} | {"self_attn.o_proj": "o"}
COLUMNS |= {"mlp.gate_proj": "gate_up", "mlp.up_proj": "gate_up", "mlp.down_proj": "down"}
ROWS = {"input_layernorm": "qkv", "post_attention_layernorm": "gate_up"}
ROWS |= {"self_attn.v_proj": "o", "mlp.up_proj": "down"}


def fold_layer(layer, scales):
    result, one = {}, torch.ones(1)
    for full, tensor in layer.items():
        module, _, kind = full.rpartition(".")
        rows = 1 / scales.get(ROWS.get(module), one)
        columns = scales.get(COLUMNS.get(module), one)
        if len(rows) not in (1, *tensor.shape[:1]):
            raise ValueError(f"{full}: {len(rows)} factors for {len(tensor)} rows")
        if kind == "weight" and tensor.dim() == 2:
            result[full] = torch.einsum("nk,n,k->nk", tensor, rows.expand(len(tensor)),
                                        columns.expand(tensor.shape[1]))  # fmt: skip
        else:
            result[full] = tensor * rows if module in ROWS else tensor
    return result
