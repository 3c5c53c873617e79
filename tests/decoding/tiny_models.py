"""A tiny random Llama of ours and the same one in transformers."""

import torch

from efflib.models import Llama, LlamaConfig, save_pretrained

VOCAB = 61


def tiny(seed: int, layers: int = 2, hidden: int = 32, vocab: int = VOCAB) -> Llama:
    """Random weights, large enough that the next-token distributions are far from uniform."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=128,
    )
    generator = torch.Generator().manual_seed(seed)
    model = Llama(config).eval()
    for p in model.parameters():
        if p.ndim == 2:
            p.data = torch.randn(p.shape, generator=generator) * 1.5 / p.shape[1] ** 0.5
    return model


def ids_of(seed: int, batch: int, length: int, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def theirs(model: Llama, folder):
    from transformers import LlamaForCausalLM

    save_pretrained(model, folder)
    return LlamaForCausalLM.from_pretrained(folder).eval()
