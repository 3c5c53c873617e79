"""A readable Llama, with the parameter names and the checkpoint layout of Hugging Face.

    h_0     = Embedding(ids)
    h'_l    = h_l  + Attention(RMSNorm(h_l))          pre-norm residual blocks
    h_{l+1} = h'_l + W_down (act(W_gate x) * W_up x),    x = RMSNorm(h'_l),  act silu or relu
    logits  = W_lm_head RMSNorm(h_L)

Source: Touvron et al., "LLaMA" (2023), section 2.2; grouped-query attention as in "Llama 2"
(2023), appendix A.2.1. Its logits equal those of ``transformers.LlamaForCausalLM``.

What is pluggable, so that a technique changes one thing and leaves the rest alone:

- ``attention(q, k, v, mask)``: a function; `Llama.set_attention` sets it for every layer, or
  assign ``layer.self_attn.attention`` for one layer.
- the cache: any object with the two names of `cache.Cache`; `cache.KVCache` is the plain one.
- every projection is an ``nn.Linear``, to be found and replaced by name.

Where implementations differ: the rotary embedding here rotates the pairs (i, i + d/2), as Hugging
Face does; Meta's checkpoints pair (2i, 2i + 1), and the conversion permutes W_q and W_k.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.models.cache import Cache

ACTIVATIONS = {"silu": F.silu, "relu": F.relu}
AttentionFn = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LlamaConfig:
    """The fields of a Hugging Face ``config.json`` that a Llama needs, under the same names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    bos_token_id: int | None = 0
    eos_token_id: int | None = None
    hidden_act: str = "silu"

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads} must be a multiple of "
                f"num_key_value_heads={self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even: rotary turns pairs")
        if self.hidden_act not in (known := sorted(ACTIVATIONS)):
            raise ValueError(f"hidden_act={self.hidden_act!r} is not supported, only {known}")

    @classmethod
    def from_dict(cls, raw: dict) -> "LlamaConfig":
        """Read a ``config.json``; what would change the function and is not here is refused."""
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ValueError(f"rope_type={kind!r} is not supported, only 'default'")
        heads = raw["num_attention_heads"]
        values = {
            "num_key_value_heads": heads,
            "rope_theta": rope.get("rope_theta", 10000.0),
            **{f.name: raw[f.name] for f in fields(cls) if f.name in raw},
        }
        if values.get("head_dim") is None:
            values["head_dim"] = raw["hidden_size"] // heads
        return cls(**values)

    def to_dict(self) -> dict:
        """The ``config.json`` that ``transformers`` reads."""
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(self)}


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """True where query i may see key j; the queries are the last tokens among the keys. [T, S]"""
    i = torch.arange(queries, device=device)[:, None] + (keys - queries)
    j = torch.arange(keys, device=device)[None, :]
    return j <= i


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v; q [B, H, T, d], k and v [B, Hkv, S, d], mask [T, S] bool."""
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    """Where half precision does not serve: squares that overflow, angles of large positions."""
    return torch.promote_types(dtype, torch.float32)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding (Su et al., 2021, section 3.4.2) in Hugging Face's pairing.

    The pair (x_i, x_{i+d/2}) turns by the angle position * theta^(-2i/d).
    x [B, H, T, d], positions [T] or [B, T].
    """
    d, precise = x.shape[-1], at_least_fp32(x.dtype)
    frequency = theta ** (-torch.arange(0, d, 2, device=x.device, dtype=precise) / d)
    angle = positions[..., None].to(precise) * frequency  # [T, d/2] or [B, T, d/2]
    if positions.ndim == 2:
        angle = angle[:, None]  # one for all heads
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * weight (+ bias), Zhang and Sennrich (2019).

    Llama has no bias; ``bias`` is None unless a transform of the model sets one.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.register_parameter("bias", None)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        precise = x.to(at_least_fp32(x.dtype))
        unit = precise * torch.rsqrt(precise.square().mean(-1, keepdim=True) + self.eps)
        y = self.weight * unit.to(x.dtype)
        return y if self.bias is None else y + self.bias


class LlamaAttention(nn.Module):
    """Grouped-query self-attention: H query heads share Hkv key and value heads."""

    def __init__(self, c: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = c, layer
        self.attention: AttentionFn = sdpa
        width, bias = c.num_attention_heads * c.head_dim, c.attention_bias
        kv_width = c.num_key_value_heads * c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, width, bias=bias)
        self.k_proj = nn.Linear(c.hidden_size, kv_width, bias=bias)
        self.v_proj = nn.Linear(c.hidden_size, kv_width, bias=bias)
        self.o_proj = nn.Linear(width, c.hidden_size, bias=bias)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        heads = (*x.shape[:2], -1, self.config.head_dim)
        q = self.q_proj(x).view(heads).transpose(1, 2)  # [B, H, T, d]
        k = self.k_proj(x).view(heads).transpose(1, 2)  # [B, Hkv, T, d]
        v = self.v_proj(x).view(heads).transpose(1, 2)  # [B, Hkv, T, d]
        q = rotate(q, positions, self.config.rope_theta)
        if not getattr(cache, "keeps_raw_keys", False):
            k = rotate(k, positions, self.config.rope_theta)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)  # [B, Hkv, S, d]
        if mask is None:
            mask = causal_mask(q.shape[2], k.shape[2], x.device)
        out = self.attention(q, k, v, mask)  # [B, H, T, d]
        return self.o_proj(out.transpose(1, 2).flatten(2))


class LlamaMLP(nn.Module):
    """SwiGLU, or with relu ReGLU (Shazeer, 2020): W_down (act(W_gate x) * W_up x)."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=c.mlp_bias)
        self.act = ACTIVATIONS[c.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, c: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = LlamaAttention(c, layer)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = LlamaMLP(c)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaModel(nn.Module):
    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(LlamaLayer(c, i) for i in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


class Llama(nn.Module):
    """A Llama with its language-model head: token ids [B, T] to logits [B, T, V]."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def set_attention(self, attention: AttentionFn) -> None:
        """Use `attention(q, k, v, mask)` in every layer."""
        for layer in self.model.layers:
            layer.self_attn.attention = attention

    def forward(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, V] of ids [B, T]; `cache`, where given, grows by T tokens.

        positions [T] or [B, T]: default, from ``cache.length`` (or 0) upwards.
        mask [T, S] or [B, 1, T, S], True where query may see key: default, causal.
        """
        if ids.ndim != 2:
            raise ValueError(f"ids must be [B, T], got shape {tuple(ids.shape)}")
        if positions is None:
            start = 0 if cache is None else cache.length
            positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.model.embed_tokens(ids)  # [B, T, D]
        for layer in self.model.layers:
            x = layer(x, positions, mask, cache)
        return self.lm_head(self.model.norm(x))
