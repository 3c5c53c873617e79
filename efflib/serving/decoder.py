"""What memory and roofline need to know of a decoder: shapes, read from a config.json.

    decoder("llama-3.1-70b")                   a model of the table below
    decoder("path/to/config.json")             a file of Hugging Face's, or the folder it lies in
    decoder(model.config)                      a `LlamaConfig`, or a dict with the same names

`efflib.serving.shapes` says what follows from shapes, `efflib.serving.families` which families are
read and how they differ.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from efflib.checks import nearest
from efflib.models.config import LlamaConfig
from efflib.serving.families import from_config
from efflib.serving.shapes import Decoder, Experts, Latent

__all__ = ["MODELS", "Decoder", "Experts", "Latent", "decoder", "from_config"]


def decoder(source: "Decoder | LlamaConfig | Mapping | str | Path") -> Decoder:
    """The shapes of a model of the table, of a config, or of a file.

    Raises ValueError for an unknown name, a family that is not listed, or a missing field.
    """
    if isinstance(source, Decoder):
        return source
    if isinstance(source, LlamaConfig):
        return from_config(source.to_dict())
    if isinstance(source, Mapping):
        return from_config(source)
    if str(source) in MODELS:
        return MODELS[str(source)]
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        known = ", ".join(MODELS)
        raise ValueError(
            f"{str(source)!r} is no file, and no name of the table{nearest(str(source), MODELS)} "
            f"(there are {known})"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise ValueError(f"{path} is no JSON: {fault}") from None
    return from_config(raw)


# fmt: off
MODELS = {  # layers, hidden, heads, kv_heads, head_dim, intermediate, vocab
    "llama-2-7b": Decoder(32, 4096, 32, 32, 128, 11008, 32000),
    "llama-2-13b": Decoder(40, 5120, 40, 40, 128, 13824, 32000),
    "llama-2-70b": Decoder(80, 8192, 64, 8, 128, 28672, 32000),
    "llama-2-70b-mha": Decoder(80, 8192, 64, 64, 128, 28672, 32000),  # "if using MHA": no such one
    "llama-3.1-8b": Decoder(32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3.1-70b": Decoder(80, 8192, 64, 8, 128, 28672, 128256),
    "llama-3.1-405b": Decoder(126, 16384, 128, 8, 128, 53248, 128256),
    "mistral-7b": Decoder(32, 4096, 32, 8, 128, 14336, 32000, window=4096),  # v0.1
    "mixtral-8x7b": Decoder(32, 4096, 32, 8, 128, 14336, 32000, experts=Experts(8, 2, 0, 14336)),
    "qwen2.5-7b": Decoder(28, 3584, 28, 4, 128, 18944, 152064, bias=True),
    "gemma-2b": Decoder(18, 2048, 8, 1, 256, 16384, 256000, tied=True),
    "deepseek-v3": Decoder(61, 7168, 128, 128, 56, 18432, 129280,
                           latent=Latent(512, 64, 128, 128, 1536),
                           experts=Experts(256, 8, 1, 2048, 3)),
    "qwen3-30b-a3b": Decoder(48, 2048, 32, 4, 128, 6144, 151936, head_norms=True,
                             experts=Experts(128, 8, 0, 768)),
    "gpt-oss-20b": Decoder(24, 2880, 64, 8, 64, 2880, 201088, bias=True, out_bias=True,
                           window=128, full_layers=12, sinks=True,
                           experts=Experts(32, 4, 0, 2880, bias=True)),
    "gpt-oss-120b": Decoder(36, 2880, 64, 8, 64, 2880, 201088, bias=True, out_bias=True,
                            window=128, full_layers=18, sinks=True,
                            experts=Experts(128, 4, 0, 2880, bias=True)),
    "gemma-3-27b": Decoder(62, 5376, 32, 16, 128, 21504, 262208, tied=True, head_norms=True,
                           window=1024, full_layers=10, norms=4),  # the text model
    "phi-4": Decoder(40, 5120, 40, 10, 128, 17920, 100352),
    "llama-4-scout": Decoder(48, 5120, 40, 8, 128, 16384, 202048, window=8192, full_layers=12,
                             chunked=True, experts=Experts(16, 1, 1, 8192)),  # the text model
}
# fmt: on
