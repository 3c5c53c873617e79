"""A Llama in parts: each rank reads its own part of one checkpoint, and nothing else of it.

`TensorLlama` cuts every layer: heads, inner channels, vocabulary.  A forward makes one all-reduce
in the embedding and two in each layer; logits stay in parts.  `Stage` cuts between layers: it takes
ids or what the stage before sent, and gives what the next one needs.

    part = TensorLlama(folder, comm)
    losses = part.losses(ids)                    the same in every rank
    new = part.greedy(ids, tokens=8)
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from efflib.models.checkpoint import CONFIG_FILE, WEIGHTS_FILE
from efflib.models.config import ACTIVATIONS, LlamaConfig
from efflib.models.llama import LlamaLayer, RMSNorm
from efflib.models.rotary import Turns, turns
from efflib.parallel.communicator import Communicator, share
from efflib.parallel.heads import heads_of, parallel_attention, reads
from efflib.parallel.tensor import row_linear
from efflib.parallel.vocabulary import cross_entropy, embed, next_token

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def read_config(folder: Path) -> LlamaConfig:
    """Raises ValueError for what is cut nowhere here: another model type, biases."""
    raw = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    if raw.get("model_type") != "llama":
        raise ValueError(f"{folder}: model_type={raw.get('model_type')!r}, not llama")
    config = LlamaConfig.from_dict(raw)
    if config.attention_bias or config.mlp_bias:
        raise ValueError(f"{folder}: biases are not supported")
    return config


class Slices:
    """Rows or columns of a checkpoint's weights, read from the file alone."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._file, self._dtype = safe_open(folder / WEIGHTS_FILE, framework="pt"), dtype
        self.names = set(self._file.keys())

    def whole(self, name: str) -> Tensor:
        return self._file.get_tensor(name).to(self._dtype)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        return self._file.get_slice(name)[start:stop].to(self._dtype)

    def columns(self, name: str, start: int, stop: int) -> Tensor:
        return self._file.get_slice(name)[:, start:stop].to(self._dtype)


def _norm(weight: Tensor, eps: float) -> RMSNorm:
    norm = RMSNorm(len(weight), eps).to(weight.dtype)
    with torch.no_grad():
        norm.weight.copy_(weight)
    return norm


class TensorLlama:
    """This rank's part of every layer of the checkpoint in `folder`."""

    def __init__(
        self, folder: str | Path, comm: Communicator, dtype: torch.dtype = torch.float32
    ) -> None:
        folder = Path(folder)
        self.comm, self.config = comm, read_config(folder)
        c, own = self.config, Slices(folder, dtype)
        self.start, stop = share(c.vocab_size, comm.rank, comm.size)
        self.table = own.rows(EMBEDDING, self.start, stop)
        tied = HEAD not in own.names
        self.head = self.table if tied else own.rows(HEAD, self.start, stop)
        self.norm = _norm(own.whole("model.norm.weight"), c.rms_norm_eps)
        heads, self.kept = heads_of(
            comm.rank, comm.size, c.num_attention_heads, c.num_key_value_heads
        )
        self.which = reads(heads, self.kept, c.num_attention_heads, c.num_key_value_heads)
        self.layers = [self._layer(own, i, heads) for i in range(c.num_hidden_layers)]

    def _layer(self, own: Slices, i: int, heads: list[int]) -> dict[str, Tensor | RMSNorm]:
        c, d, at = self.config, self.config.head_dim, f"model.layers.{i}."
        q = slice(heads[0] * d, heads[-1] * d + d) if heads else slice(0, 0)
        k = slice(self.kept[0] * d, self.kept[-1] * d + d) if heads else slice(0, 0)
        inner = share(c.intermediate_size, self.comm.rank, self.comm.size)
        attention = [("q", q), ("k", k), ("v", k)]
        qkv = [
            own.rows(f"{at}self_attn.{n}_proj.weight", rows.start, rows.stop)
            for n, rows in attention
        ]
        return {
            "qkv": torch.cat(qkv),
            "out": own.columns(f"{at}self_attn.o_proj.weight", q.start, q.stop),
            "gate": own.rows(f"{at}mlp.gate_proj.weight", *inner),
            "up": own.rows(f"{at}mlp.up_proj.weight", *inner),
            "down": own.columns(f"{at}mlp.down_proj.weight", *inner),
            "before": _norm(own.whole(f"{at}input_layernorm.weight"), c.rms_norm_eps),
            "between": _norm(own.whole(f"{at}post_attention_layernorm.weight"), c.rms_norm_eps),
        }

    def parameters(self) -> int:
        """Numbers that this rank holds; a head that is the embedding counts once."""
        held = [self.table, self.norm.weight]
        held += [self.head] if self.head is not self.table else []
        for layer in self.layers:
            held += [v.weight if isinstance(v, RMSNorm) else v for v in layer.values()]
        return sum(t.numel() for t in held)

    @torch.no_grad()
    def hidden(self, ids: Tensor) -> Tensor:
        """What the head reads, [B, T, D], whole in every rank."""
        c, comm = self.config, self.comm
        x = embed(ids, self.table, self.start, comm)
        by = turns(torch.arange(ids.shape[1]), c.head_dim, c.rope_theta, x.dtype, c.rope_scaling)
        act = ACTIVATIONS[c.hidden_act]
        for p in self.layers:
            normed = p["before"](x)
            x = x + parallel_attention(normed, p["qkv"], p["out"], self.which, c.head_dim, by, comm)
            normed = p["between"](x)
            inner = act(F.linear(normed, p["gate"])) * F.linear(normed, p["up"])
            x = x + row_linear(inner, p["down"], None, comm)
        return self.norm(x)

    @torch.no_grad()
    def losses(self, ids: Tensor) -> Tensor:
        """Loss of each next token, [B, T - 1] float32."""
        hidden = self.hidden(ids[:, :-1]).flatten(0, 1)
        flat = cross_entropy(hidden, self.head, ids[:, 1:].flatten(), self.start, self.comm)
        return flat.view(len(ids), -1)

    @torch.no_grad()
    def greedy(self, ids: Tensor, tokens: int) -> Tensor:
        """ids [B, T] and `tokens` more, each the likeliest; without a cache.  [B, T + tokens]"""
        for _ in range(tokens):
            last = self.hidden(ids)[:, -1]
            new = next_token(last, self.head, self.start, self.comm)
            ids = torch.cat([ids, new[:, None]], 1)
        return ids


class Stage:
    """This rank's layers of the checkpoint in `folder`; the last one has the head as well."""

    def __init__(
        self, folder: str | Path, rank: int, size: int, dtype: torch.dtype = torch.float32
    ) -> None:
        folder = Path(folder)
        c, own = read_config(folder), Slices(folder, dtype)
        self.config, self.first, self.last = c, rank == 0, rank == size - 1
        self.table = own.whole(EMBEDDING) if self.first else None
        self.layers = []
        for i in range(*share(c.num_hidden_layers, rank, size)):
            layer = LlamaLayer(c, i).to(dtype).eval()
            at = f"model.layers.{i}."
            layer.load_state_dict({n: own.whole(at + n) for n in layer.state_dict()})
            self.layers.append(layer)
        if self.last:
            self.norm = _norm(own.whole("model.norm.weight"), c.rms_norm_eps)
            self.head = own.whole(HEAD if HEAD in own.names else EMBEDDING)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """ids [B, T] (the first) or [B, T, D] to [B, T, D], in the last one to logits [B, T, V]."""
        x = F.embedding(x, self.table) if self.first else x
        c = self.config
        by: Turns = turns(
            torch.arange(x.shape[1]), c.head_dim, c.rope_theta, x.dtype, c.rope_scaling
        )
        for layer in self.layers:
            x = layer(x, by, None, None)
        return F.linear(self.norm(x), self.head) if self.last else x


def pipeline(stage: Stage, micro: list[Tensor], comm: Communicator) -> list[Tensor]:
    """The logits [B, T, V] of each micro-batch of ids [B, T] in the last rank; [] in the others."""
    out = []
    for ids in micro:
        like = torch.empty(*ids.shape, stage.config.hidden_size)
        x = stage(ids if stage.first else comm.recv(like, comm.rank - 1))
        if stage.last:
            out.append(x)
        else:
            comm.send(x, comm.rank + 1)
    return out
