"""A small random Llama for the tests of fine-tuning."""

import torch

from efflib.models.llama import Llama, LlamaConfig

ATTENTION = ("q_proj", "v_proj")
ALL = ("self_attn", "mlp")


def llama(dtype: torch.dtype = torch.float32) -> Llama:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    return Llama(config).eval().to(dtype)


def batches(steps: int, seed: int = 0) -> list[torch.Tensor]:
    """Text that counts up by one, so that there is something to learn. [2, 17] each"""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(50, (steps, 2, 1), generator=generator)
    return list((starts + torch.arange(17)) % 50)


def randomize(model: torch.nn.Module) -> torch.nn.Module:
    """Make B random, in place: an update that does something."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".b"):
                parameter.normal_(std=0.1, generator=generator)
    return model
