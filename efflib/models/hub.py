"""What is inside a decoder of transformers, described once, by the `model_type` of its config.

Techniques that change a model ask here which linears read which norm, which rows make queries,
keys and values, and what stands between a linear and the residual stream:

    model_type               norms       between out, down and stream   q k v     gate up    experts
    llama, mistral           RMS         -                              apart     apart
    qwen2 (biases on q k v)  RMS         -                              apart     apart
    qwen3                    RMS         -             (norms of heads) apart     apart
    gemma2                   RMS, 1 + w  a norm of its own              apart     apart
    gemma3_text              RMS, 1 + w  a norm        (norms of heads) apart     apart
    phi3                     RMS         -                              one       one
    opt                      LayerNorm   -                              apart     fc1 alone
    gpt2 (with_linears)      LayerNorm   -                              one       c_fc alone
    mixtral (with_linears)   RMS         -                              apart     apart      yes

efflib's own `Llama` and `Mixture` have the names of llama and mixtral, and are described with them.
A name is that of the module in the model: "model.layers.0.self_attn.q_proj".  Any other model_type
is refused by its name: a guess from names alone goes wrong in silence, since Gemma's
`post_attention_layernorm` is not what Llama's is.
"""

from typing import NamedTuple

from torch import nn

from efflib.models.config import LlamaConfig, MixtureConfig


class Family(NamedTuple):
    """The names of one model_type; all but the first three relative to a block."""

    blocks: str
    embeddings: tuple[str, ...]
    last_norm: str
    norms: tuple[str, str]  # what attention reads, what the MLP reads
    qkv: tuple[str, ...]  # three linears, or one that holds the rows of all
    out: str
    ups: tuple[str, ...]  # gate and up, or one that holds both, or one without a gate
    down: str
    mlp: str | None = "mlp"  # None: no module of its own
    closing: tuple[str, ...] = ()  # norms between a linear's output and the residual stream
    head_norms: tuple[str, ...] = ()
    one_plus: bool = False  # a norm multiplies by 1 + weight
    experts: str | None = None
    router: str | None = None


LLAMA = Family(
    blocks="model.layers",
    embeddings=("model.embed_tokens",),
    last_norm="model.norm",
    norms=("input_layernorm", "post_attention_layernorm"),
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    out="self_attn.o_proj",
    ups=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
)
HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
GEMMA2 = LLAMA._replace(
    norms=("input_layernorm", "pre_feedforward_layernorm"),
    closing=("post_attention_layernorm", "post_feedforward_layernorm"),
    one_plus=True,
)
FAMILIES = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA._replace(head_norms=HEAD_NORMS),
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2._replace(head_norms=HEAD_NORMS),
    "phi3": LLAMA._replace(qkv=("self_attn.qkv_proj",), ups=("mlp.gate_up_proj",)),
    "opt": Family(
        blocks="model.decoder.layers",
        embeddings=("model.decoder.embed_tokens", "model.decoder.embed_positions"),
        last_norm="model.decoder.final_layer_norm",
        norms=("self_attn_layer_norm", "final_layer_norm"),
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out="self_attn.out_proj",
        ups=("fc1",),
        down="fc2",
        mlp=None,
    ),
    "gpt2": Family(
        blocks="transformer.h",
        embeddings=("transformer.wte", "transformer.wpe"),
        last_norm="transformer.ln_f",
        norms=("ln_1", "ln_2"),
        qkv=("attn.c_attn",),
        out="attn.c_proj",
        ups=("mlp.c_fc",),
        down="mlp.c_proj",
    ),
    "mixtral": LLAMA._replace(
        ups=("gate_proj", "up_proj"), down="down_proj", experts="mlp.experts", router="mlp.gate"
    ),
}
ELSEWHERE = {"gemma3": 'its text part is "gemma3_text": load it as Gemma3ForCausalLM'}


class Rows(NamedTuple):
    """Rows start to stop of a linear."""

    linear: str
    start: int
    stop: int


class Block(NamedTuple):
    """One layer of a decoder; names are full."""

    name: str
    attention: str
    mlp: str | None
    norms: dict[str, tuple[str, ...]]  # norm -> linears that read it
    routers: dict[str, tuple[str, ...]]  # norm -> routers that read it, which are not quantized
    query: Rows
    key: Rows
    value: Rows
    out: str
    downs: tuple[str, ...]  # one, or one for each expert
    before: dict[str, Rows]  # linear -> the rows it is linear in: row i makes its input i


class Decoder(NamedTuple):
    """What `describe` finds."""

    model_type: str
    family: Family
    blocks: list[Block]
    query_heads: int
    key_heads: int
    head_dim: int
    no_folds: str | None  # why nothing can be folded into the norms


def model_type(model: nn.Module) -> str | None:
    """The model_type of the model's config; None if it has none."""
    config = getattr(model, "config", None)
    if isinstance(config, LlamaConfig):
        return "mixtral" if isinstance(config, MixtureConfig) else "llama"
    return getattr(config, "model_type", None)


def describe(model: nn.Module) -> Decoder:
    """The inside of a causal language model.

    Raises ValueError for a model_type that is not known here, naming those that are, and if a
    module is missing.
    """
    kind = model_type(model)
    if kind not in FAMILIES:
        known = ELSEWHERE.get(kind, f"known are {', '.join(FAMILIES)}")
        raise ValueError(
            f"{type(model).__name__} has no norm of a known layout: model_type={kind!r}; {known}"
        )
    family, c = FAMILIES[kind], model.config
    heads = c.num_attention_heads
    key_heads = getattr(c, "num_key_value_heads", None) or heads
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // heads
    blocks = model.get_submodule(family.blocks)
    made = [
        _block(f"{family.blocks}.{i}", family, c, heads, key_heads, head_dim)
        for i in range(len(blocks))
    ]
    _expect_modules(model, made)
    return Decoder(kind, family, made, heads, key_heads, head_dim, _no_folds(kind, c))


def _no_folds(kind: str, c) -> str | None:
    if kind != "opt":
        return None
    if not c.do_layer_norm_before:  # OPT-350m
        return "its norms come after the residual sum, so their output is the stream itself"
    if not c.layer_norm_elementwise_affine:
        return "its norms have no gain to fold into"
    return None


def _block(name: str, family: Family, c, heads: int, key_heads: int, head_dim: int) -> Block:
    def full(part: str) -> str:
        return f"{name}.{part}"

    q, kv = heads * head_dim, key_heads * head_dim
    if len(family.qkv) == 3:
        starts, linears = (0, 0, 0), family.qkv
    else:
        starts, linears = (0, q, q + kv), family.qkv * 3
    query, key, value = (
        Rows(full(linear), start, start + size)
        for linear, start, size in zip(linears, starts, (q, kv, kv), strict=True)
    )
    places = [""]
    if family.experts:
        places = [f"{family.experts}.{e}." for e in range(c.num_local_experts)]
    ups = tuple(full(place + up) for place in places for up in family.ups)
    downs = tuple(full(place + family.down) for place in places)
    before = {} if key_heads < heads else {full(family.out): value}
    for place, down in zip(places, downs, strict=True):
        if rows := _rows_before_down(family, full, place, c):
            before[down] = rows
    attention_norm, mlp_norm = (full(norm) for norm in family.norms)
    return Block(
        name,
        full(family.qkv[0].rpartition(".")[0]),
        full(family.mlp) if family.mlp else None,
        {attention_norm: tuple(dict.fromkeys(full(n) for n in family.qkv)), mlp_norm: ups},
        {mlp_norm: (full(family.router),)} if family.router else {},
        query,
        key,
        value,
        full(family.out),
        downs,
        before,
    )


def _rows_before_down(family: Family, full, place: str, c) -> Rows | None:
    """The rows that make what `down` reads, up to a factor that does not depend on them.

    act(gate) * up is linear in up; relu(fc1) lets a positive factor through, gelu does not.
    """
    if family.ups[-1].endswith("up_proj"):
        width, fused = c.intermediate_size, len(family.ups) == 1
        return Rows(full(place + family.ups[-1]), width * fused, width * (1 + fused))
    if getattr(c, "activation_function", None) == "relu":
        return Rows(full(place + family.ups[0]), 0, c.ffn_dim)
    return None


def _expect_modules(model: nn.Module, blocks: list[Block]) -> None:
    modules = {name for name, _ in model.named_modules()}
    for block in blocks:
        wanted = [*block.norms, block.out, *block.downs]
        wanted += [n for names in [*block.norms.values(), *block.routers.values()] for n in names]
        if missing := [name for name in wanted if name not in modules]:
            raise ValueError(
                f"{type(model).__name__} has no {missing[0]}: call with_linears(model) first, "
                "if its experts are tensors and no linears"
            )
