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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_integers, expect_within
from efflib.models.cache import Cache
from efflib.models.config import ACTIVATIONS, LlamaConfig
from efflib.models.rotary import Turns, at_least_fp32, turn, turns

AttentionFn = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """True where query i may see key j; the queries are the last tokens among the keys. [T, S]"""
    if queries == 1:  # every step of decoding, in every layer
        return torch.ones(1, keys, dtype=torch.bool, device=device)
    i = torch.arange(queries, device=device)[:, None] + (keys - queries)
    j = torch.arange(keys, device=device)[None, :]
    return j <= i


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v; q [B, H, T, d], k and v [B, Hkv, S, d], mask [T, S] bool."""
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


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

    def forward(self, x: Tensor, by: Turns, mask: Tensor | None, cache: Cache | None) -> Tensor:
        heads = (*x.shape[:2], -1, self.config.head_dim)
        q = self.q_proj(x).view(heads).transpose(1, 2)  # [B, H, T, d]
        k = self.k_proj(x).view(heads).transpose(1, 2)  # [B, Hkv, T, d]
        v = self.v_proj(x).view(heads).transpose(1, 2)  # [B, Hkv, T, d]
        q = turn(q, by)
        if not getattr(cache, "keeps_raw_keys", False):
            k = turn(k, by)
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

    def forward(self, x: Tensor, by: Turns, mask: Tensor | None, cache: Cache | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), by, mask, cache)
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

    def _embedded(self, ids: Tensor) -> Tensor:
        try:
            return self.model.embed_tokens(ids)
        except IndexError:  # on a CPU; looking before would wait for a GPU
            expect_within(self.config.vocab_size, ids=ids)
            raise

    def forward(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, V] of ids [B, T]; arguments as of `hidden`."""
        return self.lm_head(self.hidden(ids, cache, positions, mask))

    def hidden(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """What the head reads, [B, T, D]; `cache`, where given, grows by T tokens.

        positions [T] or [B, T]: default, from ``cache.length`` (or 0) upwards.
        mask [T, S] or [B, 1, T, S] bool, True where query may see key: default, causal.
        """
        expect_dims("[B, T]", ids=ids)
        expect_integers(ids=ids)
        if mask is not None and mask.dtype != torch.bool:
            raise ValueError(f"mask must be bool, True where a key is seen, got {mask.dtype}")
        if positions is None:
            start = 0 if cache is None else getattr(cache, "next_position", cache.length)
            positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        elif positions.shape not in (ids.shape[1:], ids.shape):
            raise ValueError(
                f"positions {tuple(positions.shape)} must be [T] or [B, T] of ids "
                f"{tuple(ids.shape)}"
            )
        x = self._embedded(ids)  # [B, T, D]
        c = self.config
        by = turns(positions, c.head_dim, c.rope_theta, x.dtype, c.rope_scaling)
        for layer in self.model.layers:
            x = layer(x, by, mask, cache)
        return self.model.norm(x)
