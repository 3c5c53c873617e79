"""Families of config.json: parameters and caches equal those of transformers' own tiny models."""

import functools

import pytest
import torch

from efflib.serving.decoder import MODELS, decoder
from efflib.serving.memory import Format, kv_bytes

TOKENS, BATCH, WINDOW = 13, 2, 4  # of the caches; with windows that are full and begin anew
SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LATENT = {
    "num_key_value_heads": 6,
    "head_dim": 4,  # of what is turned
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 10,
    "q_lora_rank": 12,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
SLIDING = {"sliding_window": WINDOW}
LLAMA4 = {"intermediate_size_mlp": 112, "attention_chunk_size": WINDOW, "num_local_experts": 4}
LLAMA4 |= {"num_experts_per_tok": 1}
MIXED = ["full_attention", "full_attention", "sliding_attention", "full_attention"]
MIXED.append("sliding_attention")
CASES = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    ("llama", {"attention_bias": True, "num_key_value_heads": 1}),
    ("mistral", SLIDING),
    ("mistral", {"sliding_window": None}),
    ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 4} | SLIDING),
    ("qwen2", {}),
    ("qwen2", SLIDING | {"use_sliding_window": True, "max_window_layers": 2}),
    ("qwen2", {"attention_bias": True}),  # means nothing there
    ("qwen3", {}),
    ("qwen3", {"attention_bias": True}),
    ("qwen3", SLIDING | {"use_sliding_window": True, "max_window_layers": 0}),
    ("qwen3_moe", EXPERTS | {"num_experts": 6}),
    ("qwen3_moe", EXPERTS | {"num_experts": 6, "decoder_sparse_step": 2}),
    ("qwen3_moe", EXPERTS | {"num_experts": 6, "mlp_only_layers": [0, 3]}),
    ("qwen3_moe", EXPERTS | {"num_experts": 6, "use_sliding_window": True} | SLIDING),
    ("gemma", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    ("gemma2", SLIDING),
    ("gemma2", {"attention_bias": True, "layer_types": MIXED} | SLIDING),
    ("gemma3_text", SLIDING | {"sliding_window_pattern": 3}),
    ("gemma3_text", SLIDING | {"tie_word_embeddings": False, "layer_types": MIXED}),
    ("gemma3_text", SLIDING | {"num_hidden_layers": 3}),  # none keeps everything
    ("phi3", {}),
    ("phi3", SLIDING | {"attention_bias": True, "num_key_value_heads": 6}),
    ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2} | SLIDING),
    ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": False}),
    ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 4, "layer_types": MIXED} | SLIDING),
    ("llama4_text", LLAMA4),
    ("llama4_text", LLAMA4 | {"interleave_moe_layer_step": 2, "attention_bias": True}),
    ("llama4_text", LLAMA4 | {"no_rope_layers": [1, 0, 1, 0, 0], "moe_layers": [3]}),
    ("deepseek_v2", LATENT | {"q_lora_rank": None}),
    ("deepseek_v2", LATENT | {"attention_bias": True}),
    ("deepseek_v3", LATENT),
    ("deepseek_v3", LATENT | {"attention_bias": True, "first_k_dense_replace": 5}),
]
NAMES = [f"{family}-{i}" for i, (family, _) in enumerate(CASES)]


@functools.cache
def configured(case: int):
    from transformers import AutoConfig

    family, fields = CASES[case]
    return AutoConfig.for_model(family, **(SMALL | fields))


def built(config, device: str):
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("case", range(len(CASES)), ids=NAMES)
def test_parameters_are_those_of_transformers(case):
    config = configured(case)
    counted = sum(p.numel() for p in built(config, "meta").parameters())
    assert decoder(config.to_dict()).parameters() == counted
    family, fields = CASES[case]
    assert decoder(SMALL | fields | {"model_type": family}).parameters() == counted


class Recorded:
    """A cache of transformers, and the numbers that each update hands to attention."""

    def __init__(self, config):
        from transformers import DynamicCache

        self.cache, self.handed = DynamicCache(config=config), 0
        inner = self.cache.update

        def update(*args, **kwargs):
            both = inner(*args, **kwargs)
            self.handed += sum(x.numel() for x in both)
            return both

        self.cache.update = update

    def held(self) -> int:
        layers = self.cache.layers
        return sum(x.numel() for layer in layers for x in (layer.keys, layer.values))


@pytest.mark.parametrize("case", range(len(CASES)), ids=NAMES)
def test_caches_hold_what_is_stated(case):
    """Token by token: what a step's attention gets, which is a window with the newest token."""
    config = configured(case)
    m = decoder(config.to_dict())
    torch.manual_seed(0)
    model, seen = built(config, "cpu"), Recorded(config)
    ids = torch.randint(0, 96, (BATCH, TOKENS))
    for t in range(TOKENS):
        seen.handed = 0
        with torch.no_grad():
            model(ids[:, t : t + 1], past_key_values=seen.cache, use_cache=True)
        stated = kv_bytes(m, t + 1, BATCH, Format(32)) / 4
        assert seen.handed == stated, f"{t + 1} tokens"
        # between two steps a full window waits for the next token: one less
        waiting = BATCH * m.window_layers * 2 * m.kv_heads * m.head_dim
        assert seen.held() == stated - (waiting if m.window and t + 1 >= m.window else 0)


@pytest.mark.parametrize("case", range(len(CASES)), ids=NAMES)
def test_tokens_seen_are_those_that_attention_weighs(case):
    """Weights above 0 of transformers' own masks: `seen`, and their sum over a prompt `pairs`."""
    config = configured(case)
    m = decoder(config.to_dict())
    torch.manual_seed(0)
    with torch.no_grad():
        maps = built(config, "cpu")(torch.arange(TOKENS)[None], output_attentions=True).attentions
    rows = sum((p[0, 0] > 0).sum(-1) for p in maps)  # [T], over layers
    assert rows.tolist() == [m.seen(t + 1) for t in range(TOKENS)]
    assert m.pairs(TOKENS) == rows.sum()
    assert m.seen(0) == m.kept(0) == m.pairs(0) == 0


def test_towers_are_left_out_and_what_files_leave_out_is_filled_in():
    """Gemma 3's and Llama 4's files hold the text model inside; Gemma's leave out its heads."""
    from transformers import AutoConfig, AutoModelForCausalLM

    inside = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7}
    raw = {"model_type": "gemma3", "text_config": inside | {"model_type": "gemma3_text"}}
    config = AutoConfig.for_model("gemma3_text", **inside)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    m = decoder(raw)
    assert m.parameters() == sum(p.numel() for p in model.parameters())
    assert (m.heads, m.kv_heads, m.head_dim, m.full_layers, m.tied) == (8, 4, 256, 1, True)
    assert not decoder(raw | {"tie_word_embeddings": False}).tied
    text = SMALL | LLAMA4
    assert decoder({"model_type": "llama4", "text_config": text}) == decoder(
        text | {"model_type": "llama4_text"}
    )
    with pytest.raises(ValueError, match="the config lacks text_config"):
        decoder({"model_type": "llama4"})


def test_what_is_not_counted_is_refused():
    gemma = SMALL | SLIDING | {"model_type": "gemma3_text"}
    for raw, message in (
        (SMALL | {"mlp_bias": True}, "mlp_bias is not counted"),
        (gemma | {"layer_types": ["linear_attention"] * 5}, "kind 'linear_attention'"),
        (gemma | {"layer_types": MIXED[:2]}, "layer_types names 2 layers of 5"),
        (SMALL | {"model_type": "qwen3_next"}, "model_type='qwen3_next' is not known"),
        (SMALL | LATENT | {"model_type": "deepseek_v3", "num_experts_per_tok": 5}, "5 of only 4"),
        (SMALL | EXPERTS | {"model_type": "qwen3_moe"}, "the config lacks num_local_experts"),
    ):
        with pytest.raises(ValueError, match=message):
            decoder(raw)


def test_the_table_reads_as_published_files():
    """Fields of the published config.json files, and the rows of the table."""
    gemma = {"hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62}
    gemma |= {"num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}
    gemma |= {"sliding_window": 1024}
    assert decoder({"model_type": "gemma3", "text_config": gemma}) == MODELS["gemma-3-27b"]
    oss = {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880}
    oss |= {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64}
    oss |= {"num_local_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24}
    assert decoder(oss | {"vocab_size": 201088}) == MODELS["gpt-oss-20b"]
