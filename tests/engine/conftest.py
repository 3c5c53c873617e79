import pytest
import torch

from efflib.decoding.sampling import generate
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama

VOCABULARY = 61


@pytest.fixture(scope="session")
def model() -> Llama:
    """A model that nobody trained, in float64: two logits as near as a batch's rounding, 1e-13,
    are then nothing that a text of some hundred tokens meets, and its texts repeat themselves
    often enough for proposals to hold."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=96,
    )
    return Llama(config).double().eval()


@pytest.fixture(scope="session")
def alone():
    """Plain greedy decoding of one request; each is asked for once."""
    known = {}

    def answer(model: Llama, prompt, tokens: int) -> list[int]:
        key = id(model), tuple(prompt), tokens
        if key not in known:
            with torch.inference_mode():
                ids = generate(model, torch.tensor([list(prompt)]), tokens)
            known[key] = ids[0, len(prompt) :].tolist()
        return known[key]

    return answer
