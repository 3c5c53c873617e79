"""Where models compute, and in which dtype: the one place that decides.

    EFFLIB_DEVICE   cpu (if it is not set: figures and grades are those of a CPU), cuda, cuda:1,
                    mps, or auto: a GPU where there is one
    EFFLIB_DTYPE    float32 (if it is not set), bfloat16 or float16

Models of one's own (`lab.use`, the stories' command) follow both.  The zoo's models do what
`zoo.load` is told, and are on the CPU in float32 if it is told nothing: no variable of a shell may
change what a grade is computed from.  Nothing here moves a tensor behind one's back: a model is
moved once, by `place`; ids are made where the model is; and torch refuses to mix devices.
"""

import os

import torch
from torch import nn

DEVICE, DTYPE = "EFFLIB_DEVICE", "EFFLIB_DTYPE"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Which functions follow `with device:` is noted by torch once, at the first such line. transformers
# has another linspace while it reads a model: noted then, torch's own would stay on the CPU.
with torch.device("cpu"):
    torch.empty(0)


def chosen_device(name: str | torch.device | None = None) -> torch.device:
    """The device of this name; None: what EFFLIB_DEVICE says.

    Raises ValueError for what is no device, and for a GPU that torch does not see.
    """
    source = f"{DEVICE}=" if name is None else ""
    name = str(name if name is not None else os.environ.get(DEVICE) or "cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"{source}{name} is no device: cpu, cuda, cuda:1, mps or auto") from error
    if device.type == "cuda" and not (device.index or 0) < torch.cuda.device_count():
        raise ValueError(
            f"{source}{name}, but torch {torch.__version__} sees {torch.cuda.device_count()} GPUs"
        )
    return device


def chosen_dtype(name: str | None = None) -> torch.dtype:
    """The dtype of this name; None: what EFFLIB_DTYPE says.  Raises ValueError for any other."""
    source = f"{DTYPE}=" if name is None else ""
    name = name or os.environ.get(DTYPE) or "float32"
    if name not in DTYPES:
        raise ValueError(f"{source}{name} is none of {', '.join(DTYPES)}")
    return DTYPES[name]


def place(model: nn.Module, device: str | torch.device | None = None) -> nn.Module:
    """The model itself, its parameters and buffers on the device; dtypes stay.

    A dtype is given where weights are read: `.to(bfloat16)` would round rotary angles too, which
    transformers keeps in float32.  Tied weights stay tied.
    """
    return model.to(chosen_device(device))


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter is."""
    return next(model.parameters()).device
