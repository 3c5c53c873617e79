"""Models to run techniques on: a readable Llama and its checkpoints.

    llama       the model
    config      the fields of config.json that change its function
    rotary      angles of positions, those of Llama 3.1 too
    cache       keys and values of the tokens seen
    paged_cache the same in blocks, which sequences may share
    pages       the same with somebody else's tables and slots
    checkpoint  Hugging Face's folders, read and written
    hub         what is inside the decoders of transformers, by model_type
    gains       the gains of norms, taken into what reads them
    experts     Mixtral's experts as linears, and back
    groups      which linears read the output of which norm
    cost        FLOPs and bytes of a pass, part by part, from a config
    scaling     parameters and tokens of a training budget (Chinchilla)
    offsets     a constant added to norms and taken off again behind them

What nearly everything needs can be had from the package itself; the rest is loaded by its name.
"""

from efflib.models.cache import KVCache
from efflib.models.checkpoint import from_pretrained, save_pretrained
from efflib.models.llama import Llama, LlamaConfig

__all__ = ["KVCache", "Llama", "LlamaConfig", "from_pretrained", "save_pretrained"]
