"""Models to run techniques on: a readable Llama and its checkpoints."""

from efflib.models.cache import KVCache
from efflib.models.checkpoint import from_pretrained, save_pretrained
from efflib.models.llama import Llama, LlamaConfig

__all__ = ["KVCache", "Llama", "LlamaConfig", "from_pretrained", "save_pretrained"]
