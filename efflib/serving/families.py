"""Reads the shapes of a decoder from the fields of a config.json of Hugging Face.

Families store other things under the same names, so only those that are listed here are read, and
of each only what changes counts.  Counts and caches equal those of transformers' models (tested).
What a family's files leave out has the value of transformers' classes.

    windows of all layers     mistral, mixtral, phi3, qwen3_moe
    of the last layers        qwen2, qwen3: from layer max_window_layers on
    of most layers            gemma2 and gpt_oss every second, gemma3 five of six; `layer_types`
                              says it where it is given
    chunks                    llama4: three of four layers, the fourth has no positions
    experts of some layers    deepseek: behind the first; qwen3_moe, llama4: every n-th

gemma3 and llama4 hold a tower for pictures beside the text model: the text model is read.
"""

from collections.abc import Mapping

from efflib.checks import expect_whole
from efflib.serving.shapes import Decoder, Experts, Latent

BIASES = ("qwen2",)  # q, k and v have them, whatever the config says
ASKED_BIASES = ("llama", "gemma", "gemma2", "gemma3_text", "qwen3", "qwen3_moe", "gpt_oss")
ASKED_BIASES += ("llama4_text", "deepseek_v2", "deepseek_v3")  # q, k, v and o, if it says so
HEAD_NORMS = ("qwen3", "qwen3_moe", "gemma3_text")  # RMSNorm of each query and key
FOUR_NORMS = ("gemma2", "gemma3_text")  # also behind attention and MLP
TIED = ("gemma", "gemma2", "gemma3_text")  # where config.json does not say it
LATENT = ("deepseek_v2", "deepseek_v3")
WINDOWS = ("mistral", "mixtral", "phi3", "gemma2", "gemma3_text", "gpt_oss", "llama4_text")
ASKED_WINDOWS = ("qwen2", "qwen3", "qwen3_moe")  # if use_sliding_window
NESTED = {"gemma3": "gemma3_text", "llama4": "llama4_text"}  # the text model inside
FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2")
FAMILIES += ("gemma3", "gemma3_text", "phi3", "gpt_oss", "llama4", "llama4_text", *LATENT)

LEFT_OUT = {  # of files that say nothing; Gemma 3's leave out even the heads
    "mistral": {"sliding_window": 4096},
    "gemma2": {"sliding_window": 4096},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 4096,
    },
    "gpt_oss": {"sliding_window": 128, "attention_bias": True},
    "llama4_text": {"attention_chunk_size": 8192},
}
KINDS = ("full_attention", "sliding_attention", "chunked_attention")


def from_config(raw: Mapping) -> Decoder:
    """The shapes in a config.json.  Raises ValueError for another family or a missing field."""
    family = raw.get("model_type", "llama")
    if family not in FAMILIES:
        raise ValueError(f"model_type={family!r} is not known, only {', '.join(FAMILIES)}")
    try:
        if family in NESTED:
            family, raw = NESTED[family], _text_model(raw)
        return _decoder(LEFT_OUT.get(family, {}) | dict(raw), family)
    except KeyError as missing:
        raise ValueError(f"the config lacks {missing.args[0]}") from None


def _text_model(raw: Mapping) -> dict:
    """The fields of the text model; whether its tables are tied stands outside of it."""
    outside = {name: raw[name] for name in ("tie_word_embeddings",) if name in raw}
    return {**raw["text_config"], **outside}


def _decoder(raw: Mapping, family: str) -> Decoder:
    heads, hidden, layers = (
        raw[name] for name in ("num_attention_heads", "hidden_size", "num_hidden_layers")
    )
    expect_whole(1, num_attention_heads=heads, hidden_size=hidden, layers=layers)
    if raw.get("mlp_bias"):
        raise ValueError("mlp_bias is not counted here")
    biases = family in ASKED_BIASES and bool(raw.get("attention_bias"))
    window, full = _windows(raw, family, layers)
    dense = "intermediate_size_mlp" if family == "llama4_text" else "intermediate_size"
    return Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or hidden // heads,
        intermediate=raw[dense],
        vocab=raw["vocab_size"],
        tied=raw.get("tie_word_embeddings", family in TIED),
        bias=family in BIASES or biases,
        out_bias=biases,
        head_norms=family in HEAD_NORMS,
        window=window,
        latent=_latent(raw) if family in LATENT else None,
        experts=_experts(raw, family, layers),
        norms=4 if family in FOUR_NORMS else 2,
        sinks=family == "gpt_oss",
        full_layers=full,
        chunked=family == "llama4_text" and window is not None,
    )


def _latent(raw: Mapping) -> Latent:
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return Latent(*(raw[name] for name in names), raw.get("q_lora_rank"))


def _windows(raw: Mapping, family: str, layers: int) -> tuple[int | None, int]:
    """(window, layers that keep everything beside those with it)"""
    asked = family in ASKED_WINDOWS and raw.get("use_sliding_window")
    if family not in WINDOWS and not asked:
        return None, 0
    window = raw.get("attention_chunk_size" if family == "llama4_text" else "sliding_window")
    kinds = raw.get("layer_types")
    if kinds is None:
        full = sum(_keeps_all(raw, family, i) for i in range(layers))
    else:
        if len(kinds) != layers:
            raise ValueError(f"layer_types names {len(kinds)} layers of {layers}")
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise ValueError(f"layers of the kind {unknown[0]!r} are not known")
        full = kinds.count("full_attention")
    return (None, 0) if window is None or full == layers else (window, full)


def _keeps_all(raw: Mapping, family: str, layer: int) -> bool:
    """Whether a layer has no window, where `layer_types` does not say it."""
    if family in ("qwen2", "qwen3"):
        return layer < raw.get("max_window_layers", 28)
    if family in ("gemma2", "gpt_oss"):
        return layer % 2 == 1
    if family == "gemma3_text":
        return (layer + 1) % raw.get("sliding_window_pattern", 6) == 0
    if family == "llama4_text":
        if raw.get("no_rope_layers"):
            return not raw["no_rope_layers"][layer]
        return (layer + 1) % raw.get("no_rope_layer_interval", 4) == 0
    return False


def _experts(raw: Mapping, family: str, layers: int) -> Experts | None:
    if family in ("mixtral", "gpt_oss"):
        used, width = raw["num_experts_per_tok"], raw["intermediate_size"]
        return Experts(raw["num_local_experts"], used, 0, width, bias=family == "gpt_oss")
    if family == "qwen3_moe":
        routed = raw["num_experts"] if "num_experts" in raw else raw["num_local_experts"]
        step, only = raw.get("decoder_sparse_step", 1), raw.get("mlp_only_layers") or ()
        sparse = sum(i not in only and (i + 1) % step == 0 for i in range(layers)) if routed else 0
        if not sparse:
            return None
        used, width = raw["num_experts_per_tok"], raw["moe_intermediate_size"]
        return Experts(routed, used, 0, width, layers - sparse)
    if family == "llama4_text":
        step = raw.get("interleave_moe_layer_step", 1)
        where = raw.get("moe_layers")
        sparse = len(range(step - 1, layers, step)) if where is None else len(set(where))
        used, width = raw["num_experts_per_tok"], raw["intermediate_size"]
        return (
            Experts(raw["num_local_experts"], used, 1, width, layers - sparse) if sparse else None
        )
    if family not in LATENT or not raw.get("n_routed_experts"):
        return None
    names = ("n_routed_experts", "num_experts_per_tok", "n_shared_experts")
    numbers = [raw[name] for name in (*names, "moe_intermediate_size", "first_k_dense_replace")]
    return Experts(*numbers)
