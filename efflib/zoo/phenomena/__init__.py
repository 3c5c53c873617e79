"""What the lectures tell, measured on the shipped models: `python -m efflib.zoo.phenomena`."""

import importlib
from types import ModuleType

STORIES = (
    "quantization",
    "smoothquant",
    "awq",
    "pruning",
    "kv_quantization",
    "sinks",
    "sink_variants",
    "backcopy",
    "speculative",
    "lora",
    "gptq",
    "moe",
)


def module(name: str) -> ModuleType:
    """The module of a story: see `efflib.zoo.phenomena.story`."""
    return importlib.import_module(f"efflib.zoo.phenomena.{name}")
