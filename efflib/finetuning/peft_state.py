"""Adapters on disk as peft writes them, so that either library loads what the other has trained.

    adapter_model.safetensors   base_model.model.<layer>.lora_A.weight   A [r, K]
                                base_model.model.<layer>.lora_B.weight   B [N, r]
    adapter_config.json         r, lora_alpha, use_rslora, lora_dropout, target_modules, ...

<layer> is the linear's name in the model, "model.layers.0.self_attn.q_proj".  The file of a rank-4
adapter is r (N + K) numbers a layer: the base model is not in it.
Layout: peft 0.21 (huggingface.co/docs/peft), which reads and writes the same names since 0.2.

Where implementations differ: peft finds its layers by `target_modules`, the last component of a
name or a regular expression; here they are those that the file has tensors for, and full names are
written, which peft takes for exactly these layers.
"""

import copy
import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from efflib.checks import expect_keys
from efflib.finetuning.lora import LoRALinear
from efflib.quantization.nf4 import NF4Linear

PREFIX = "base_model.model."
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PARTS = {"a": "lora_A.weight", "b": "lora_B.weight"}
# what peft can do beside a plain update, with the value that means "not done"
NOT_READ = {"use_dora": False, "fan_in_fan_out": False, "bias": "none", "modules_to_save": None}


def updates(model: nn.Module) -> dict[str, LoRALinear]:
    """{name: layer} of all updates; raises ValueError if there is none."""
    found = {name: m for name, m in model.named_modules() if isinstance(m, LoRALinear)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no updates of add_lora")
    return found


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """{peft's name: A or B} of every update, detached and contiguous."""
    return {
        f"{PREFIX}{name}.{key}": getattr(layer, part).detach().contiguous()
        for name, layer in updates(model).items()
        for part, key in PARTS.items()
    }


def adapter_config(model: nn.Module) -> dict[str, object]:
    """What peft's LoraConfig has to know. Raises ValueError if layers differ in r, alpha, ..."""
    found = updates(model)
    kinds = {
        (len(layer.a), layer.alpha, layer.dropout, layer.rank_stabilized)
        for layer in found.values()
    }
    if len(kinds) > 1:
        raise ValueError(f"updates differ in (r, alpha, dropout, rank_stabilized): {sorted(kinds)}")
    r, alpha, dropout, rank_stabilized = kinds.pop()
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": r,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
        "use_rslora": rank_stabilized,
        "target_modules": sorted(found),
        "inference_mode": True,
        **NOT_READ,
    }


def save_adapter(model: nn.Module, folder: Path | str) -> None:
    """Writes both files into the folder, which is made if it is missing."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(adapter_state(model), folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(adapter_config(model), indent=2) + "\n")


def load_adapter(model: nn.Module, folder: Path | str) -> nn.Module:
    """A copy of the model, frozen, with the updates of the folder beside its layers.

    Raises ValueError for an adapter that is no plain LoRA, whose layers the model has not, or that
    has another shape; FileNotFoundError if a file is missing.
    """
    folder = Path(folder)
    config = json.loads((folder / CONFIG).read_text())
    _expect_plain(config)
    state = load_file(folder / WEIGHTS)
    strange = [
        k for k in state if not k.startswith(PREFIX) or not k.endswith(tuple(PARTS.values()))
    ]
    if strange:
        raise ValueError(f"{folder / WEIGHTS}: {strange[0]!r} is no A or B of a linear")
    names = sorted({key.removeprefix(PREFIX).rpartition(".lora_")[0] for key in state})
    modules = dict(model.named_modules())
    expect_keys(modules, layers=names)
    expect_keys(state, tensors=[f"{PREFIX}{n}.{key}" for n in names for key in PARTS.values()])
    model = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        own = {part: state[f"{PREFIX}{name}.{key}"] for part, key in PARTS.items()}
        model.set_submodule(name, _layer(model.get_submodule(name), name, own, config))
    return model


def _expect_plain(config: dict) -> None:
    if config.get("peft_type") != "LORA":
        raise ValueError(f"peft_type is {config.get('peft_type')!r}, only 'LORA' is read")
    for key, plain in NOT_READ.items():
        if config.get(key, plain) != plain:
            raise ValueError(f"{key}={config[key]!r} is not read, only {plain!r}")
    for key in ("rank_pattern", "alpha_pattern"):
        if config.get(key):
            raise ValueError(f"{key}={config[key]!r} is not read: one r and one alpha for all")


def _layer(base: nn.Module, name: str, own: dict[str, Tensor], config: dict) -> LoRALinear:
    r, alpha = config["r"], config["lora_alpha"]
    dropout, stabilized = config.get("lora_dropout", 0.0), config.get("use_rslora", False)
    if not isinstance(base, nn.Linear | NF4Linear):
        raise ValueError(f"{name} is a {type(base).__name__}, not an nn.Linear or NF4Linear")
    layer = LoRALinear(base, r, alpha, dropout, rank_stabilized=stabilized)
    for part, tensor in own.items():
        parameter = getattr(layer, part)
        if parameter.shape != tensor.shape:
            seen, right = tuple(tensor.shape), tuple(parameter.shape)
            raise ValueError(f"{name}: {PARTS[part]} is {seen}, the layer needs {right}")
        parameter.data.copy_(tensor)
    return layer
