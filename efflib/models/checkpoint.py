"""Checkpoints in Hugging Face's layout: a folder with config.json and model.safetensors."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from efflib.models.config import LlamaConfig, MixtureConfig
from efflib.models.llama import Llama
from efflib.models.mixture import Mixture, hub_name

KINDS = {"llama": (LlamaConfig, Llama), "mixtral": (MixtureConfig, Mixture)}  # by model_type
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def stored_names(model: Llama) -> dict[str, str]:
    """The name in the file of each of the model's weights: a mixture's are Mixtral's."""
    rename = hub_name if isinstance(model, Mixture) else str
    return {name: rename(name) for name in model.state_dict()}


def from_pretrained(folder: str | Path, dtype: torch.dtype = torch.float32) -> Llama:
    """Read a checkpoint of a Llama or a Mixtral, ours or Hugging Face's, as a model in eval mode.

    Raises:
        FileNotFoundError: names the file that is missing.
        ValueError: for a config of another kind, or weights that do not fit it.
    """
    folder = Path(folder)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"no {name} in {folder}")
    try:
        raw = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG_FILE} is not JSON: {error}") from error
    if raw.get("model_type") not in KINDS:
        kinds = " or ".join(KINDS)
        raise ValueError(
            f"{folder / CONFIG_FILE}: model_type={raw.get('model_type')!r}, not {kinds}"
        )
    kind, build = KINDS[raw["model_type"]]
    model = build(kind.from_dict(raw))
    try:
        weights = load_file(folder / WEIGHTS_FILE)
    except Exception as error:
        raise ValueError(f"{folder / WEIGHTS_FILE} is not a safetensors file: {error}") from error
    if model.config.tie_word_embeddings:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    ours = {stored: name for name, stored in stored_names(model).items()}
    try:
        model.load_state_dict({ours.get(name, name): w for name, w in weights.items()})
    except RuntimeError as error:
        raise ValueError(f"{folder / WEIGHTS_FILE} does not fit config.json: {error}") from error
    return model.to(dtype).eval()


def save_pretrained(model: Llama, folder: str | Path, dtype: torch.dtype = torch.float32) -> None:
    """Write a checkpoint that `from_pretrained` and ``transformers`` read; weights in `dtype`.

    Tied weights are stored once, under the name of the embedding.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {**model.config.to_dict(), "dtype": str(dtype).removeprefix("torch.")}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    names = stored_names(model)
    state = model.state_dict()
    weights = {names[n]: p.detach().to("cpu", dtype).contiguous() for n, p in state.items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    (folder / WEIGHTS_FILE).write_bytes(save(weights, metadata={"format": "pt"}))
