"""What a Llama is: the fields of Hugging Face's config.json that change its function."""

from dataclasses import MISSING, asdict, dataclass, fields

import torch.nn.functional as F

from efflib.checks import expect_whole
from efflib.models.rotary import RopeScaling

ACTIVATIONS = {"silu": F.silu, "relu": F.relu}
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)


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
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        expect_whole(1, **{name: getattr(self, name) for name in SIZES})
        if not (self.rms_norm_eps >= 0 and self.rope_theta > 0):
            raise ValueError(
                f"need rms_norm_eps >= 0 and rope_theta > 0, got {self.rms_norm_eps} and "
                f"{self.rope_theta}"
            )
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
        required = [f.name for f in fields(cls) if f.default is MISSING]
        optional = ("head_dim", "num_key_value_heads")
        if missing := [name for name in required if name not in raw and name not in optional]:
            raise ValueError(f"the config lacks {', '.join(missing)}")
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "llama3"):
            raise ValueError(f"rope_type={kind!r} is not supported, only 'default' and 'llama3'")
        values = {f.name: raw[f.name] for f in fields(cls) if f.name in raw}
        values.setdefault("num_key_value_heads", raw["num_attention_heads"])
        values.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
        values["rope_scaling"] = llama3_scaling(rope) if kind == "llama3" else None
        if values.get("head_dim") is None:
            expect_whole(1, num_attention_heads=raw["num_attention_heads"])
            values["head_dim"] = raw["hidden_size"] // raw["num_attention_heads"]
        return cls(**values)

    def to_dict(self) -> dict:
        """The ``config.json`` that ``transformers`` reads."""
        raw = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(self)}
        scaling = raw.pop("rope_scaling")
        if scaling is not None:
            raw["rope_scaling"] = {"rope_type": "llama3", **scaling}
        return raw


@dataclass(frozen=True)
class MixtureConfig(LlamaConfig):
    """Of a Mixtral: ``intermediate_size`` is that of one expert.

    router_aux_loss_coef: of the balancing loss, in training alone.
    """

    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_whole(1, num_local_experts=self.num_local_experts)
        if not 1 <= self.num_experts_per_tok <= self.num_local_experts:
            raise ValueError(
                f"num_experts_per_tok={self.num_experts_per_tok} must be from 1 to "
                f"num_local_experts={self.num_local_experts}"
            )

    def to_dict(self) -> dict:
        """The ``config.json`` that ``transformers`` reads."""
        raw = super().to_dict()
        return raw | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}


def llama3_scaling(rope: dict) -> RopeScaling:
    """The numbers of a ``config.json``'s rope parameters.  Raises ValueError if one is missing."""
    names = [f.name for f in fields(RopeScaling)]
    if missing := [name for name in names if name not in rope]:
        raise ValueError(f"rope_type='llama3' lacks {', '.join(missing)}")
    return RopeScaling(**{name: rope[name] for name in names})
