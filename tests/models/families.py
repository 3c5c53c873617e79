"""Small random decoders of transformers, one for each family and odd case of `efflib.models.hub`.

Gains and biases are random: all ones and zeros would hide a mistake.  Models are in float64 (their
norms compute in float32 even so), made once a session, and never changed by a test.
"""

from functools import cache

import torch
import transformers
from torch import nn

from efflib.models.groups import with_linears

VOCAB, WIDTH, INNER, HEADS, KEYS, LAYERS, WINDOW = 61, 32, 48, 4, 2, 2, 5
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=WIDTH,
    intermediate_size=INNER,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=KEYS,
    max_position_embeddings=64,
    pad_token_id=None,
    bos_token_id=0,
    eos_token_id=1,
    attention_dropout=0.0,
)
OPT = dict(
    vocab_size=VOCAB,
    hidden_size=WIDTH,
    ffn_dim=INNER,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    max_position_embeddings=64,
    word_embed_proj_dim=WIDTH,
)
LAYER_TYPES = ["sliding_attention", "full_attention"]  # of both layers
CASES = {
    "llama": ("Llama", SIZES),
    "llama tied, biases": (
        "Llama", SIZES | dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
    ),
    "llama, every head a key": ("Llama", SIZES | dict(num_key_value_heads=HEADS)),
    "mistral": ("Mistral", SIZES | dict(sliding_window=WINDOW, head_dim=8)),
    "qwen2": (
        "Qwen2",
        SIZES | dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    ),
    "qwen3": ("Qwen3", SIZES | dict(head_dim=12, tie_word_embeddings=True)),
    "gemma2": (
        "Gemma2", SIZES | dict(head_dim=12, sliding_window=WINDOW, layer_types=LAYER_TYPES)
    ),
    "gemma3_text": (
        "Gemma3", SIZES | dict(head_dim=12, sliding_window=WINDOW, layer_types=LAYER_TYPES)
    ),
    "phi3": ("Phi3", SIZES | dict(sliding_window=WINDOW)),
    "phi3, every head a key": ("Phi3", SIZES | dict(num_key_value_heads=HEADS)),
    "opt": ("OPT", OPT),
    "opt, gelu and no biases": ("OPT", OPT | dict(activation_function="gelu", enable_bias=False)),
    "opt, norms behind": ("OPT", OPT | dict(do_layer_norm_before=False, word_embed_proj_dim=24)),
    "gpt2": (
        "GPT2", dict(vocab_size=VOCAB, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=64,
                     bos_token_id=0, eos_token_id=1)
    ),
    "mixtral": ("Mixtral", SIZES | dict(num_local_experts=3, num_experts_per_tok=2)),
}  # fmt: skip
CONFIGS = {"Gemma3": "Gemma3TextConfig"}
NO_FOLD = ("opt, norms behind",)
CLOSED = ("gemma2", "gemma3_text")  # a norm between what is written and the stream


@cache
def stored(case: str) -> nn.Module:
    """The model as transformers makes it, in eval mode."""
    kind, sizes = CASES[case]
    config = getattr(transformers, CONFIGS.get(kind, f"{kind}Config"))(**sizes)
    if kind == "Mixtral":
        config._experts_implementation = "eager"  # the other ones know no float64
    head = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    torch.manual_seed(0)
    model = getattr(transformers, head)(config).eval().double()
    middle = 0.0 if kind.startswith("Gemma") else 1.0
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=p.dtype)
            if p.ndim == 1 and name.endswith("weight"):  # of a norm
                p.copy_(middle + 0.3 * noise.clamp(-2, 2))
            elif p.ndim == 1:
                p.copy_(0.1 * noise)
            else:
                p.copy_(noise * p.shape[-1] ** -0.5)
    return model


@cache
def family(case: str) -> nn.Module:
    """The same with a linear for all that is one."""
    return with_linears(stored(case)) if case in ("gpt2", "mixtral") else stored(case)


@cache
def ids() -> torch.Tensor:
    """[3, 14], longer than a window."""
    return torch.randint(2, VOCAB, (3, 14), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def logits(model: nn.Module) -> torch.Tensor:
    return model(ids()).logits


def expect_same_function(model: nn.Module, case: str, rounding: float = 1e-5) -> None:
    """Norms compute in float32, so sums of some hundred terms agree to a few of its steps."""
    exact = logits(family(case))
    assert (logits(model) - exact).abs().max() <= rounding * exact.abs().max()
