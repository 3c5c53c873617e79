"""What memory and roofline need to know of a decoder: shapes, read from a config.json.

    decoder("llama-3.1-70b")                   a model of the table below
    decoder("path/to/config.json")             a file of Hugging Face's, or the folder it lies in
    decoder(model.config)                      a `LlamaConfig`, or a dict with the same names

Parameters of a layer, with D hidden, H query heads, Hkv key heads of size d, I intermediate:

    attention   2 D H d + 2 D Hkv d        q and o; k and v
    latent      D r_q + r_q H (n + p) + D (r + p) + r H (n + d_v) + H d_v D
    MLP         3 D I                      gate, up and down
    experts     3 D I_e (routed + shared) + D routed

A latent (DeepSeek-V2, arXiv:2405.04434, section 2.1) is one vector of r values a token, from which
all heads make their keys and values, beside one key of p values that carries the position.  Keys
without it have n values; with r_q the queries come from a vector too, without it directly.

Names are Hugging Face's.  Other families store other things under the same names, so only those
that are listed here are read.  Counts equal those of transformers' models (tested).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from efflib.checks import expect_whole, nearest
from efflib.models.config import LlamaConfig

BIASES = ("qwen2",)  # q, k and v have them
HEAD_NORMS = ("qwen3",)  # RMSNorm of each query and key
TIED = ("gemma",)  # where config.json does not say it
LATENT = ("deepseek_v2", "deepseek_v3")
FAMILIES = ("llama", "mistral", "mixtral", *BIASES, *HEAD_NORMS, *TIED, *LATENT)


@dataclass(frozen=True)
class Latent:
    """What DeepSeek keeps in place of keys and values."""

    rank: int  # r: the vector
    rope: int  # p: the key with the position
    nope: int  # n: a head's key without position
    value: int  # d_v: a head's value
    query_rank: int | None  # r_q

    def __post_init__(self) -> None:
        expect_whole(1, rank=self.rank, rope=self.rope, nope=self.nope, value=self.value)
        expect_whole(1, query_rank=1 if self.query_rank is None else self.query_rank)


@dataclass(frozen=True)
class Experts:
    """The MLPs of a mixture of experts."""

    routed: int
    used: int  # of them, by one token
    shared: int  # by all tokens
    width: int  # I_e
    dense_layers: int = 0  # the first ones, with an ordinary MLP

    def __post_init__(self) -> None:
        expect_whole(1, routed=self.routed, used=self.used, width=self.width)
        expect_whole(shared=self.shared, dense_layers=self.dense_layers)
        if self.used > self.routed:
            raise ValueError(f"a token uses {self.used} of only {self.routed} experts")


@dataclass(frozen=True)
class Decoder:
    """The shapes of a decoder-only model with gated MLPs."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    bias: bool = False  # of q, k and v
    out_bias: bool = False  # of o
    head_norms: bool = False
    window: int | None = None  # tokens that a layer keeps
    latent: Latent | None = None
    experts: Experts | None = None

    def __post_init__(self) -> None:
        names = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
        expect_whole(1, **{name: getattr(self, name) for name in names})
        expect_whole(1, window=1 if self.window is None else self.window)
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")

    @property
    def attention(self) -> int:
        """Parameters of one layer's attention."""
        h, D = self.heads, self.hidden
        if (c := self.latent) is not None:
            turned = c.nope + c.rope
            q = D * h * turned
            if (r := c.query_rank) is not None:
                q = D * r + r + r * h * turned  # with the norm between
            kv = D * (c.rank + c.rope) + c.rank + c.rank * h * (c.nope + c.value)
            return q + kv + h * c.value * D
        both = (h + 2 * self.kv_heads) * self.head_dim
        weights = D * both + h * self.head_dim * D
        return weights + self.bias * both + self.out_bias * D + self.head_norms * 2 * self.head_dim

    def mlp(self, layer: int, active: bool = False) -> int:
        """Parameters of a layer's MLP; active: those that one token uses."""
        e = self.experts
        if e is None or layer < e.dense_layers:
            return 3 * self.hidden * self.intermediate
        chosen = e.used if active else e.routed
        return 3 * self.hidden * e.width * (chosen + e.shared) + self.hidden * e.routed

    def in_layers(self, active: bool = False) -> int:
        """Parameters of all layers, norms included."""
        mlps = sum(self.mlp(i, active) for i in range(self.layers))
        return mlps + self.layers * (self.attention + 2 * self.hidden)

    @property
    def embedding(self) -> int:
        """Parameters of the token table, and of lm_head."""
        return self.vocab * self.hidden

    def parameters(self, active: bool = False) -> int:
        """All parameters; active: without the experts that a token does not use."""
        tables = 1 if self.tied else 2
        return self.in_layers(active) + tables * self.embedding + self.hidden


def decoder(source: "Decoder | LlamaConfig | Mapping | str | Path") -> Decoder:
    """The shapes of a model of the table, of a config, or of a file.

    Raises ValueError for an unknown name, a family that is not listed, or a missing field.
    """
    if isinstance(source, Decoder):
        return source
    if isinstance(source, LlamaConfig):
        return from_config(source.to_dict())
    if isinstance(source, Mapping):
        return from_config(source)
    if str(source) in MODELS:
        return MODELS[str(source)]
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        known = ", ".join(MODELS)
        raise ValueError(
            f"{str(source)!r} is no file, and no name of the table{nearest(str(source), MODELS)} "
            f"(there are {known})"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise ValueError(f"{path} is no JSON: {fault}") from None
    return from_config(raw)


def from_config(raw: Mapping) -> Decoder:
    """The shapes in a config.json.  Raises ValueError for another family or a missing field."""
    family = raw.get("model_type", "llama")
    if family not in FAMILIES:
        raise ValueError(f"model_type={family!r} is not known, only {', '.join(FAMILIES)}")
    try:
        heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
        expect_whole(1, num_attention_heads=heads, hidden_size=hidden)
        sliding = raw.get("use_sliding_window", True)
        attention_bias = raw.get("attention_bias", False)
        return Decoder(
            layers=raw["num_hidden_layers"],
            hidden=hidden,
            heads=heads,
            kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or hidden // heads,
            intermediate=raw["intermediate_size"],
            vocab=raw["vocab_size"],
            tied=raw.get("tie_word_embeddings", family in TIED),
            bias=family in BIASES or attention_bias,
            out_bias=attention_bias,
            head_norms=family in HEAD_NORMS,
            window=raw.get("sliding_window") if sliding else None,
            latent=_latent(raw) if family in LATENT else None,
            experts=_experts(raw, family),
        )
    except KeyError as missing:
        raise ValueError(f"the config lacks {missing.args[0]}") from None


def _latent(raw: Mapping) -> Latent:
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return Latent(*(raw[name] for name in names), raw.get("q_lora_rank"))


def _experts(raw: Mapping, family: str) -> Experts | None:
    if family == "mixtral":
        used, width = raw["num_experts_per_tok"], raw["intermediate_size"]
        return Experts(raw["num_local_experts"], used, 0, width)
    if family not in LATENT or not raw.get("n_routed_experts"):
        return None
    names = ("n_routed_experts", "num_experts_per_tok", "n_shared_experts")
    numbers = [raw[name] for name in (*names, "moe_intermediate_size", "first_k_dense_replace")]
    return Experts(*numbers)


# fmt: off
MODELS = {  # layers, hidden, heads, kv_heads, head_dim, intermediate, vocab
    "llama-2-7b": Decoder(32, 4096, 32, 32, 128, 11008, 32000),
    "llama-2-13b": Decoder(40, 5120, 40, 40, 128, 13824, 32000),
    "llama-2-70b": Decoder(80, 8192, 64, 8, 128, 28672, 32000),
    "llama-2-70b-mha": Decoder(80, 8192, 64, 64, 128, 28672, 32000),  # "if using MHA": no such one
    "llama-3.1-8b": Decoder(32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3.1-70b": Decoder(80, 8192, 64, 8, 128, 28672, 128256),
    "llama-3.1-405b": Decoder(126, 16384, 128, 8, 128, 53248, 128256),
    "mistral-7b": Decoder(32, 4096, 32, 8, 128, 14336, 32000, window=4096),  # v0.1
    "mixtral-8x7b": Decoder(32, 4096, 32, 8, 128, 14336, 32000, experts=Experts(8, 2, 0, 14336)),
    "qwen2.5-7b": Decoder(28, 3584, 28, 4, 128, 18944, 152064, bias=True),
    "gemma-2b": Decoder(18, 2048, 8, 1, 256, 16384, 256000, tied=True),
    "deepseek-v3": Decoder(61, 7168, 128, 128, 56, 18432, 129280,
                           latent=Latent(512, 64, 128, 128, 1536),
                           experts=Experts(256, 8, 1, 2048, 3)),
}
# fmt: on
