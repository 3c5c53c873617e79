"""A Llama whose feed-forward layers are mixtures of experts: Mixtral (Jiang et al., 2024).

    y = sum over experts e of  g_e Expert_e(x),   g = softmax of the k largest logits, 0 elsewhere

Here every expert computes every token and all but k of the products are with 0: easy to read, and
E / k times the work.  `MixtureMLP.mix` is what does it, to be replaced by something that computes
what is needed (`efflib.moe.layer.by_index`; lab 13's exercises).

Its logits equal those of ``transformers.MixtralForCausalLM``, and its checkpoints have the names
of Mixtral's: `hub_name` translates ours.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from efflib.models.config import MixtureConfig
from efflib.models.llama import Llama, LlamaMLP

Mix = Callable[[Tensor, Tensor, int, Sequence[nn.Module]], Tensor]

NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def hub_name(name: str) -> str:
    """Mixtral's name of one of our parameters."""
    if ".mlp." not in name:
        return name
    for ours, theirs in NAMES.items():
        name = name.replace(f".{ours}.", f".{theirs}.")
    return name.replace(".mlp.", ".block_sparse_moe.")


def every_expert(x: Tensor, logits: Tensor, k: int, experts: Sequence[nn.Module]) -> Tensor:
    """Tokens x [T, D] with router logits [T, E] through all experts, weighted. [T, D]

    Among equal logits the experts that come first are taken.
    """
    rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(-1)  # [T, E]
    shares = logits.float().masked_fill(rank >= k, float("-inf")).softmax(-1)
    y = 0.0
    for e, expert in enumerate(experts):
        y = y + shares[:, e, None].to(x.dtype) * expert(x)
    return y


class MixtureMLP(nn.Module):
    """In the place of a Llama's MLP.  `logits` holds what the router said last, [B T, E].

    mix(x [T, D], logits [T, E], k, experts) -> [T, D]: how experts and router make the output.
    """

    def __init__(self, c: MixtureConfig) -> None:
        super().__init__()
        self.k = c.num_experts_per_tok
        self.gate = nn.Linear(c.hidden_size, c.num_local_experts, bias=False)
        self.experts = nn.ModuleList(LlamaMLP(c) for _ in range(c.num_local_experts))
        self.mix: Mix = every_expert
        self.logits: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)  # [B T, D]
        self.logits = self.gate(tokens)  # [B T, E]
        return self.mix(tokens, self.logits, self.k, self.experts).view_as(x)


class Mixture(Llama):
    """Token ids [B, T] to logits [B, T, V], as `Llama`; layer.mlp is a `MixtureMLP`."""

    def __init__(self, config: MixtureConfig) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp = MixtureMLP(config)

    def mixtures(self) -> list[MixtureMLP]:
        """The mixture of every layer."""
        return [layer.mlp for layer in self.model.layers]

    def set_mix(self, mix: Mix) -> None:
        """Use `mix` in every layer."""
        for mixture in self.mixtures():
            mixture.mix = mix
