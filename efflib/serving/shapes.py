"""The shapes of a decoder, and what follows from them: parameters, tokens kept, tokens seen.

Parameters of a layer, with D hidden, H query heads, Hkv key heads of size d, I intermediate:

    attention   2 D H d + 2 D Hkv d        q and o; k and v
    latent      D r_q + r_q H (n + p) + D (r + p) + r H (n + d_v) + H d_v D
    MLP         3 D I                      gate, up and down
    experts     3 D I_e (routed + shared) + D routed
    biases      of q, k, v: (H + 2 Hkv) d; of o: D; of an expert and its router's row: 2 I_e + D + 1
    sinks       H                          gpt-oss: a number for each head in the softmax

A latent (DeepSeek-V2, arXiv:2405.04434, section 2.1) is one vector of r values a token, from which
all heads make their keys and values, beside one key of p values that carries the position.  Keys
without it have n values; with r_q the queries come from a vector too, without it directly.

Layers may differ in two ways, and only how many of each kind there are counts: some keep a window
and the `full_layers` everything; `dense_layers` have an ordinary MLP and the others experts.

    kept by a layer of window w     min(T, w)            of T tokens
    seen by its newest token        min(T, w);  ((T - 1) mod w) + 1 where windows are chunks

Chunks (Llama 4): a token sees those of its own chunk of w tokens, so few behind its beginning.
"""

from dataclasses import dataclass

from efflib.checks import expect_whole


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
    dense_layers: int = 0  # with an ordinary MLP
    bias: bool = False  # of experts and router

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
    norms: int = 2  # of a layer, on the stream
    sinks: bool = False
    full_layers: int = 0  # of a model with a window: those that keep everything
    chunked: bool = False  # windows are chunks

    def __post_init__(self) -> None:
        names = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
        expect_whole(1, **{name: getattr(self, name) for name in names}, norms=self.norms)
        expect_whole(1, window=1 if self.window is None else self.window)
        expect_whole(full_layers=self.full_layers)
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        if self.full_layers >= self.layers:
            raise ValueError(f"full_layers={self.full_layers} must be fewer than the layers")

    # ---- parameters ---------------------------------------------------------------------------

    @property
    def in_attention(self) -> int:
        """Weights of the matrices of one layer's attention."""
        h, D = self.heads, self.hidden
        if (c := self.latent) is None:
            return D * (h + 2 * self.kv_heads) * self.head_dim + h * self.head_dim * D
        turned = c.nope + c.rope
        q = D * h * turned if (r := c.query_rank) is None else D * r + r * h * turned
        return q + D * (c.rank + c.rope) + c.rank * h * (c.nope + c.value) + h * c.value * D

    @property
    def vectors(self) -> int:
        """Parameters of one layer outside of matrices and experts: norms, biases, sinks."""
        D, both = self.hidden, (self.heads + 2 * self.kv_heads) * self.head_dim
        more = self.norms * D + self.out_bias * D + self.head_norms * 2 * self.head_dim
        if (c := self.latent) is not None:
            r = c.query_rank or 0
            both = r + c.rank + c.rope  # biases of the projections down, not of those up
            more += r + c.rank  # the norms between
        return more + self.bias * both + self.sinks * self.heads

    @property
    def attention(self) -> int:
        """Parameters of one layer's attention."""
        return self.in_attention + self.vectors - self.norms * self.hidden

    @property
    def sparse_layers(self) -> int:
        """Layers with experts."""
        return 0 if self.experts is None else max(0, self.layers - self.experts.dense_layers)

    @property
    def expert(self) -> int:
        """Weights of one expert's matrices in one layer."""
        return 0 if self.experts is None else 3 * self.hidden * self.experts.width

    @property
    def expert_bias(self) -> int:
        """Biases of one expert in one layer."""
        e = self.experts
        return 2 * e.width + self.hidden if e is not None and e.bias else 0

    def matrices(self, active: bool = False) -> int:
        """Weights of all layers' matrices, which is what is quantized; active: as above."""
        total = self.layers * self.in_attention
        total += (self.layers - self.sparse_layers) * 3 * self.hidden * self.intermediate
        if (e := self.experts) is not None:
            chosen = (e.used if active else e.routed) + e.shared
            total += self.sparse_layers * (self.expert * chosen + self.hidden * e.routed)
        return total

    def in_layers(self, active: bool = False) -> int:
        """Parameters of all layers, norms included."""
        beside = self.layers * self.vectors
        if (e := self.experts) is not None and e.bias:
            experts = (e.used if active else e.routed) * self.expert_bias
            beside += self.sparse_layers * (experts + e.routed)  # and the router's
        return self.matrices(active) + beside

    @property
    def embedding(self) -> int:
        """Parameters of the token table, and of lm_head."""
        return self.vocab * self.hidden

    def parameters(self, active: bool = False) -> int:
        """All parameters; active: without the experts that a token does not use."""
        tables = 1 if self.tied else 2
        return self.in_layers(active) + tables * self.embedding + self.hidden

    # ---- tokens, each counted in every layer that has it ----------------------------------------

    @property
    def window_layers(self) -> int:
        """Layers that keep a window."""
        return 0 if self.window is None else self.layers - self.full_layers

    def kept(self, tokens: int) -> int:
        """Tokens in the caches of all layers behind a text of so many."""
        full = (self.layers - self.window_layers) * tokens
        return full + self.window_layers * min(tokens, self.window or tokens)

    def seen(self, tokens: int) -> int:
        """Tokens that the newest of so many attends to, itself included, in all layers."""
        if not self.chunked or self.window is None or tokens == 0:
            return self.kept(tokens)
        return self.full_layers * tokens + self.window_layers * ((tokens - 1) % self.window + 1)

    def pairs(self, tokens: int) -> int:
        """Queries and keys that meet while so many tokens are read: the sum of `seen` over them."""
        every = tokens * (tokens + 1) // 2
        if (w := self.window) is None:
            return self.layers * every
        w = min(w, tokens)
        near = w * (w + 1) // 2
        if self.chunked and w:
            whole, rest = divmod(tokens, w)
            near = whole * near + rest * (rest + 1) // 2
        else:
            near += (tokens - w) * w
        return (self.layers - self.window_layers) * every + self.window_layers * near
