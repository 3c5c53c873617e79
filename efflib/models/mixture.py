"""A Llama whose feed-forward layers are mixtures of experts: Mixtral (Jiang et al., 2024).

Its logits equal those of ``transformers.MixtralForCausalLM``, and its checkpoints have the names
of Mixtral's: `hub_name` translates ours.
"""

from efflib.models.config import MixtureConfig
from efflib.models.llama import Llama
from efflib.moe.layer import MixtureMLP

NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def hub_name(name: str) -> str:
    """Mixtral's name of one of our parameters."""
    if ".mlp." not in name:
        return name
    for ours, theirs in NAMES.items():
        name = name.replace(f".{ours}.", f".{theirs}.")
    return name.replace(".mlp.", ".block_sparse_moe.")


class Mixture(Llama):
    """Token ids [B, T] to logits [B, T, V], as `Llama`; layer.mlp is a `MixtureMLP`."""

    def __init__(self, config: MixtureConfig) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp = MixtureMLP(config)

    def mixtures(self) -> list[MixtureMLP]:
        """The mixture of every layer."""
        return [layer.mlp for layer in self.model.layers]
