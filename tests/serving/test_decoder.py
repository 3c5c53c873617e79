"""Shapes read from configs: parameters equal those of transformers' models, and what is refused."""

import json

import pytest

from efflib.models.llama import Llama, LlamaConfig
from efflib.serving.decoder import MODELS, Decoder, decoder

SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@pytest.mark.parametrize("tied", [False, True])
def test_a_llama_of_ours(tied):
    config = LlamaConfig(50, 32, 44, 2, 4, 2, 8, tie_word_embeddings=tied)
    model = Llama(config)
    assert decoder(config).parameters() == sum(p.numel() for p in model.parameters())


def test_published_counts():
    """In 10^9, as their makers print them."""
    printed = {
        "llama-2-7b": 6.74,
        "llama-2-13b": 13.02,
        "llama-2-70b": 68.98,
        "llama-3.1-8b": 8.03,
        "llama-3.1-70b": 70.55,
        "llama-3.1-405b": 405.85,
        "mistral-7b": 7.24,
        "mixtral-8x7b": 46.70,
        "qwen2.5-7b": 7.62,
        "gemma-2b": 2.51,
        "deepseek-v3": 671.03,
        "qwen3-30b-a3b": 30.53,
        "gpt-oss-20b": 20.91,
        "gpt-oss-120b": 116.83,
        "gemma-3-27b": 27.01,
        "phi-4": 14.66,
        "llama-4-scout": 107.77,
    }
    for name, count in printed.items():
        assert round(MODELS[name].parameters() / 1e9, 2) == count, name
    # "12.9B" and "37B" parameters that a token uses
    assert round(MODELS["mixtral-8x7b"].parameters(active=True) / 1e9, 1) == 12.9
    assert 37e9 < MODELS["deepseek-v3"].parameters(active=True) < 38e9
    assert 3.3e9 < MODELS["qwen3-30b-a3b"].parameters(active=True) < 3.4e9  # "3.3B"


def test_a_file_and_the_folder_it_lies_in(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    expected = Decoder(3, 48, 6, 2, 8, 80, 96)
    assert decoder(tmp_path) == decoder(str(tmp_path / "config.json")) == expected
    assert decoder(expected) is expected
    without = {k: v for k, v in SMALL.items() if k not in ("num_key_value_heads", "head_dim")}
    assert decoder(without) == Decoder(3, 48, 6, 6, 8, 80, 96)
    off = {"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": False}
    assert decoder(SMALL | off).window is None
    on = SMALL | off | {"use_sliding_window": True}
    assert decoder(on).window is None  # below layer 28 none has one
    assert decoder(on | {"max_window_layers": 2}).window == 16


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"'llama-2-7' .*nearest is 'llama-2-7b'"):
        decoder("llama-2-7")
    with pytest.raises(ValueError, match="model_type='falcon' is not known, only llama"):
        decoder(SMALL | {"model_type": "falcon"})
    with pytest.raises(ValueError, match="the config lacks vocab_size"):
        decoder({k: v for k, v in SMALL.items() if k != "vocab_size"})
    with pytest.raises(ValueError, match="heads=6 must be a multiple of kv_heads=4"):
        decoder(SMALL | {"num_key_value_heads": 4})
    with pytest.raises(ValueError, match="layers='3' must be"):
        decoder(SMALL | {"num_hidden_layers": "3"})
    with pytest.raises(ValueError, match="num_attention_heads=0 must be"):
        decoder(SMALL | {"num_attention_heads": 0})
    with pytest.raises(ValueError, match="window=-1 must be"):
        decoder(SMALL | {"model_type": "mistral", "sliding_window": -1})
    broken = tmp_path / "config.json"
    broken.write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        decoder(broken)
