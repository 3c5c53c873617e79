"""The zoo: small trained language models, their tokenizer and their text, all offline.

    from efflib import zoo

    model = zoo.load("target")                  # Llama, fp32, eval mode; "draft" is the small one
    tokenizer = zoo.load_tokenizer()            # byte-level BPE, 2048 entries
    zoo.perplexity(model, "code", tokens=16384) # strided, on held-out text
    zoo.calibration("code", n=32, length=256)   # [32, 256] ids of training text
    zoo.sample(model, zoo.PROMPTS[0])           # the start of a function, continued

Every sample starts with the begin token ``<s>``, id `BEGIN_ID`, in training and in evaluation.
A name is loaded when it is first used, so importing this package costs nothing.
"""

from importlib import import_module

_WHERE = {
    "BEGIN_ID": "tokenizer",
    "PROMPTS": "writing",
    "CorruptCheckpoint": "checkpoints",
    "begin_attention": "probe",
    "bits_per_byte": "evaluation",
    "calibration": "samples",
    "load": "checkpoints",
    "load_tokenizer": "tokenizer",
    "names": "checkpoints",
    "parses_share": "writing",
    "perplexity": "evaluation",
    "sample": "writing",
    "training_log": "checkpoints",
    "with_offset": "offset",
    "with_outliers": "outliers",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str):
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
