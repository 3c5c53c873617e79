"""Checkpoints in Hugging Face's layout: a folder with config.json and model.safetensors."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from efflib.models.llama import Llama, LlamaConfig

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def from_pretrained(folder: str | Path, dtype: torch.dtype = torch.float32) -> Llama:
    """Read a Llama checkpoint, ours or Hugging Face's, as a model in eval mode.

    Raises:
        FileNotFoundError: names the file that is missing.
        ValueError: for a config that is not a Llama, or weights that do not fit it.
    """
    folder = Path(folder)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"no {name} in {folder}")
    try:
        raw = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG_FILE} is not JSON: {error}") from error
    if raw.get("model_type") != "llama":
        raise ValueError(f"{folder / CONFIG_FILE}: model_type={raw.get('model_type')!r}, not llama")
    model = Llama(LlamaConfig.from_dict(raw))
    try:
        weights = load_file(folder / WEIGHTS_FILE)
    except Exception as error:
        raise ValueError(f"{folder / WEIGHTS_FILE} is not a safetensors file: {error}") from error
    if model.config.tie_word_embeddings:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    try:
        model.load_state_dict(weights)
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
    weights = {n: p.detach().to("cpu", dtype).contiguous() for n, p in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    (folder / WEIGHTS_FILE).write_bytes(save(weights, metadata={"format": "pt"}))
