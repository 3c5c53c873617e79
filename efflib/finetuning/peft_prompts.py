"""Prompts, prefixes and (IA)^3 factors on disk as peft writes them.

    prompt    prompt_embeddings [n, D]
    prefix    prompt_embeddings [n, L 2 Hkv d]: of each vector, layer by layer, keys, then values
    ia3       base_model.model.<layer>.ia3_l [N, 1] on outputs, [1, K] on inputs

Layout: peft 0.21.  Beside the tensors lies adapter_config.json.  Of prefixes that an MLP makes
(prefix_projection) peft stores the result, which is read as any other.
"""

import copy
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_keys
from efflib.finetuning.ia3 import ScaledLinear, add_ia3
from efflib.finetuning.peft_state import CONFIG, PREFIX, WEIGHTS
from efflib.finetuning.prefixes import LAYOUT
from efflib.models.config import LlamaConfig

KEY = "prompt_embeddings"


def _write(folder: Path | str, state: dict[str, Tensor], config: dict) -> None:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.detach().contiguous() for k, v in state.items()}
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    common = {"task_type": "CAUSAL_LM", "inference_mode": True}
    (folder / CONFIG).write_text(json.dumps(common | config, indent=2) + "\n")


def _read(folder: Path | str, kind: str) -> tuple[dict[str, Tensor], dict]:
    folder = Path(folder)
    config = json.loads((folder / CONFIG).read_text())
    if config.get("peft_type") != kind:
        raise ValueError(f"peft_type is {config.get('peft_type')!r}, expected {kind!r}")
    if config.get("modules_to_save"):
        raise ValueError(f"modules_to_save={config['modules_to_save']!r} is not read")
    return load_file(folder / WEIGHTS), config


def save_prompt(prompt: Tensor, c: LlamaConfig, folder: Path | str) -> None:
    """Writes a soft prompt [n, D]."""
    expect_dims("[n, D]", prompt=prompt)
    config = {
        "peft_type": "PROMPT_TUNING",
        "prompt_tuning_init": "RANDOM",
        "num_virtual_tokens": len(prompt),
        "token_dim": c.hidden_size,
        "num_transformer_submodules": 1,
        "num_attention_heads": c.num_attention_heads,
        "num_layers": c.num_hidden_layers,
    }
    _write(folder, {KEY: prompt}, config)


def load_prompt(folder: Path | str) -> Tensor:
    """A soft prompt [n, D].  Raises ValueError for another kind of adapter."""
    state, _ = _read(folder, "PROMPT_TUNING")
    expect_keys(state, tensors=[KEY])
    return state[KEY]


def save_prefix(prefix: Tensor, folder: Path | str) -> None:
    """Writes a prefix [L, 2, Hkv, n, d]."""
    expect_dims(LAYOUT, prefix=prefix)
    layers, _, heads, n, d = prefix.shape
    config = {
        "peft_type": "PREFIX_TUNING",
        "num_virtual_tokens": n,
        "token_dim": heads * d,  # of keys, not of the model: peft takes them for the same
        "num_transformer_submodules": 1,
        "num_attention_heads": heads,
        "num_layers": layers,
        "encoder_hidden_size": heads * d,
        "prefix_projection": False,
    }
    _write(folder, {KEY: prefix.permute(3, 0, 1, 2, 4).reshape(n, -1)}, config)


def load_prefix(folder: Path | str) -> Tensor:
    """A prefix [L, 2, Hkv, n, d].  Raises ValueError for another kind, or sizes that do not fit."""
    state, config = _read(folder, "PREFIX_TUNING")
    expect_keys(state, tensors=[KEY])
    layers, heads = config["num_layers"], config["num_attention_heads"]
    n, d = config["num_virtual_tokens"], config["token_dim"] // config["num_attention_heads"]
    stored, right = state[KEY], (n, layers * 2 * heads * d)
    if tuple(stored.shape) != right:
        raise ValueError(f"{KEY} is {tuple(stored.shape)}, the config says {right}")
    return stored.view(n, layers, 2, heads, d).permute(1, 2, 3, 0, 4).contiguous()


def save_ia3(model: nn.Module, folder: Path | str) -> None:
    """Writes the factors of a model after add_ia3.  Raises ValueError if it has none."""
    found = {n: m for n, m in model.named_modules() if isinstance(m, ScaledLinear)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no factors of add_ia3")
    state = {
        f"{PREFIX}{n}.ia3_l": m.factors[None] if m.on_input else m.factors[:, None]
        for n, m in found.items()
    }
    config = {
        "peft_type": "IA3",
        "target_modules": sorted(found),
        "feedforward_modules": sorted(n for n, m in found.items() if m.on_input),
        "fan_in_fan_out": False,
        "modules_to_save": None,
    }
    _write(folder, state, config)


def load_ia3(model: nn.Module, folder: Path | str) -> nn.Module:
    """A frozen copy of the model with the folder's factors.

    Raises ValueError for another kind of adapter, layers that the model has not, or other sizes.
    """
    state, _ = _read(folder, "IA3")
    names = {key.removeprefix(PREFIX).removesuffix(".ia3_l"): key for key in state}
    expect_keys(dict(model.named_modules()), layers=names)
    inputs = tuple(n for n, key in names.items() if state[key].shape[0] == 1)
    outputs = tuple(n for n in names if n not in inputs)
    model = add_ia3(copy.deepcopy(model), outputs, inputs)
    for name, key in names.items():
        factors = model.get_submodule(name).factors
        if factors.numel() != state[key].numel():
            seen, right = tuple(state[key].shape), tuple(factors.shape)
            raise ValueError(f"{name}: {key.rpartition('.')[2]} is {seen} for factors {right}")
        with torch.no_grad():
            factors.copy_(state[key].flatten())
    return model
