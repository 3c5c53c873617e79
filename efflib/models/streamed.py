"""A checkpoint of transformers of which one block is in memory at a time.

The model is made with parameters that have shapes and no memory (device "meta"); those of a module
are read from its safetensors when it is needed, and dropped after.  So a model is gone through
with the memory of its embedding and of one block, whatever it weighs.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from efflib.models.groups import with_linears
from efflib.models.hub import Decoder, describe
from efflib.models.mixture import hub_name

INDEX = "model.safetensors.index.json"


@contextmanager
def parameters_without_memory() -> Iterator[None]:
    """Inside, every parameter of a new module is on "meta"; buffers, as rotary angles, are real."""
    register = nn.Module.register_parameter

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=False)
        register(module, name, parameter)

    nn.Module.register_parameter = registered
    try:
        yield
    finally:
        nn.Module.register_parameter = register


class StreamedModel:
    """A folder with config.json and safetensors, in one file or in parts.

    model: the causal model of transformers, in eval mode, its parameters without memory; Mixtral's
    experts are linears.
    Raises ValueError for a model_type that `hub.describe` does not know, and if the folder has no
    tensor of a name that the model needs.
    """

    def __init__(self, folder: str | Path, dtype: torch.dtype, device: str = "cpu") -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        self.folder, self.dtype, self.device = Path(folder), dtype, device
        if not (self.folder / "config.json").is_file():
            raise ValueError(f"{folder} is no folder with a config.json: download the model first")
        config = AutoConfig.from_pretrained(self.folder)
        with parameters_without_memory():
            self.model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        if config.model_type == "mixtral":  # its files, too, hold each expert by itself
            self.model = with_linears(self.model)
        self.decoder = describe(self.model)
        _expect_readable(self.model, self.decoder)
        for module in self.model.modules():
            for name, buffer in module._buffers.items():
                module._buffers[name] = buffer if buffer is None else buffer.to(device)
        self._files = self._where()
        self.bytes = sum(p.numel() * dtype.itemsize for p in self.model.parameters())

    def _where(self) -> dict[str, tuple[Path, str]]:
        """{parameter of the model: (file, name in it)}; names may lack the leading "model." (or
        GPT-2's "transformer.")."""
        if (index := self.folder / INDEX).is_file():
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            files = ["model.safetensors"]
        stored = {}
        for file in files:
            with safe_open(self.folder / file, "pt") as tensors:
                stored |= {name: self.folder / file for name in tensors.keys()}
        found = {}
        for name, _ in self.model.named_parameters(remove_duplicate=False):
            embedding = f"{self.decoder.family.embeddings[0]}.weight"
            tied = embedding if name == "lm_head.weight" else name
            bare = [n.removeprefix("model.").removeprefix("transformer.") for n in (name, tied)]
            for other in (name, hub_name(name), bare[0], tied, bare[1]):
                if other in stored:
                    found[name] = (stored[other], other)
                    break
            else:
                raise ValueError(f"{self.folder} holds no tensor {name!r}")
        return found

    @contextmanager
    def loaded(self, name: str) -> Iterator[nn.Module]:
        """The module of this name with its parameters in memory, for the time of a `with`."""
        module = self.model.get_submodule(name)
        parameters = dict(module.named_parameters())
        try:
            for part in parameters:
                _put(module, part, self._read(f"{name}.{part}"))
            yield module
        finally:
            for part, empty in parameters.items():
                _put(module, part, empty)

    def _read(self, name: str) -> Tensor:
        file, stored = self._files[name]
        with safe_open(file, "pt") as tensors:
            return tensors.get_tensor(stored).to(self.device, self.dtype)


def _expect_readable(model: nn.Module, decoder: Decoder) -> None:
    """A model with an embedding before its blocks and one norm behind them."""
    kind, family = decoder.model_type, decoder.family
    holder = model.get_submodule(family.last_norm.rpartition(".")[0])
    last = getattr(holder, family.last_norm.rpartition(".")[2])
    if last is None or getattr(holder, "project_in", None):
        raise ValueError(f"{type(model).__name__}: this {kind} is not gone through block by block")


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    place, _, last = name.rpartition(".")
    parameter = nn.Parameter(value, requires_grad=False)
    setattr(module.get_submodule(place), last, parameter)
