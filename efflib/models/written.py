"""A checkpoint in which some weights are stored as something else: codes, scales, bytes."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from efflib.models.checkpoint import CONFIG_FILE, WEIGHTS_FILE, stored_names
from efflib.models.experts import LinearExperts
from efflib.models.llama import Llama
from efflib.models.mixture import Mixture


def write_checkpoint(
    model: nn.Module,
    folder: str | Path,
    tensors: Mapping[str, Tensor],
    replaced: Collection[str],
    quantization: dict,
    dtype: torch.dtype,
) -> None:
    """config.json with "quantization_config", and all weights but those of the linears `replaced`.

    model: ours or of transformers; its own parameters are written in `dtype`, `tensors` as they
    are.  One file.  Raises ValueError for a mixture of experts, whose files have other names.
    """
    if isinstance(model, Mixture) or any(isinstance(m, LinearExperts) for m in model.modules()):
        raise ValueError(f"{type(model).__name__}: a mixture of experts is not written")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, Llama):
        config, names = model.config.to_dict(), stored_names(model)
    else:
        config, names = json.loads(model.config.to_json_string(use_diff=False)), {}
    config |= {"dtype": str(dtype).removeprefix("torch."), "quantization_config": quantization}
    config.setdefault("architectures", None)
    config["architectures"] = config["architectures"] or [type(model).__name__]
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    gone = {f"{name}.weight" for name in replaced}
    state = {names.get(n, n): p for n, p in model.state_dict().items() if n not in gone}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    written = {n: p.detach().to("cpu", dtype).contiguous() for n, p in state.items()}
    written |= {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    save_file(written, folder / WEIGHTS_FILE, metadata={"format": "pt"})
