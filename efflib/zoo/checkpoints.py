"""The shipped checkpoints: where they are, and a load that notices a damaged file.

``checkpoints/hashes.json`` holds the sha256 of every shipped file; `load` compares before it
reads, so a truncated download or a half-written file is named instead of giving a broken model.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import torch
from torch import nn

from efflib.attention.zero_sink import with_zero
from efflib.checks import nearest
from efflib.device import chosen_dtype, place
from efflib.models.checkpoint import CONFIG_FILE, WEIGHTS_FILE, from_pretrained
from efflib.models.llama import Llama, sdpa

FOLDER = Path(__file__).parent / "checkpoints"
HASHES = "hashes.json"
TOKENIZER = "tokenizer.json"
ZERO_SINK = "zero_sink"  # key of config.json that only this package knows
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
CHECKED = (CONFIG_FILE, WEIGHTS_FILE)


class CorruptCheckpoint(RuntimeError):
    """A shipped file is missing or is not the one that was shipped."""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(folder: Path = FOLDER) -> list[str]:
    """The names that `load` knows without a network."""
    hashes = json.loads((folder / HASHES).read_text(encoding="utf-8"))
    return sorted({key.split("/")[0] for key in hashes if "/" in key})


def verify(key: str, folder: Path = FOLDER) -> Path:
    """The path of a shipped file ("draft/config.json"), after comparing it with its hash.

    Raises:
        CorruptCheckpoint: names the file and says what is wrong with it.
    """
    path = folder / key
    if not path.is_file():
        raise CorruptCheckpoint(f"{path} is missing; reinstall efflib")
    actual = sha256(path)
    expected = json.loads((folder / HASHES).read_text(encoding="utf-8"))[key]
    if actual != expected:
        raise CorruptCheckpoint(
            f"{path} is damaged: its sha256 is {actual[:12]}..., {HASHES} has "
            f"{expected[:12]}...; reinstall efflib"
        )
    return path


def record(folder: Path = FOLDER) -> None:
    """Write hashes.json for the tokenizer, if it is there, and every checkpoint in `folder`."""
    files = sorted(folder.glob(TOKENIZER))
    files += [p.parent / n for p in sorted(folder.glob(f"*/{CONFIG_FILE}")) for n in CHECKED]
    hashes = {p.relative_to(folder).as_posix(): sha256(p) for p in files}
    text = json.dumps(hashes, indent=2) + "\n"
    (folder / HASHES).write_text(text, encoding="utf-8")


def mark_zero_sink(folder: Path) -> None:
    """Note in a checkpoint's config.json that its softmax has an extra zero, for `load`."""
    file = folder / CONFIG_FILE
    config = json.loads(file.read_text(encoding="utf-8")) | {ZERO_SINK: True}
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def training_log(name: str, folder: Path = FOLDER) -> list[dict]:
    """What the training of a model of the zoo noted on its way, an entry every 250 steps.

    Raises ValueError if the zoo has none of that name.
    """
    if name not in (known := names(folder)):
        raise ValueError(f"no model {name!r} in the zoo ({', '.join(known)}){nearest(name, known)}")
    report = json.loads((folder / name / "training.json").read_text(encoding="utf-8"))
    return report["log"]


def load_unchecked(folder: Path) -> Llama:
    """The model of one folder as it is, with the extra zero where its config.json asks for it."""
    model = from_pretrained(folder)
    if json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")).get(ZERO_SINK):
        model.set_attention(with_zero(sdpa))
    return model


def load(
    name: str, folder: Path = FOLDER, device: str = "cpu", dtype: str = "float32"
) -> nn.Module:
    """A model by name, in eval mode, on a device as `efflib.device` has it; each call a fresh one.

    A name of the zoo ("target", "draft") gives our `Llama`. Any other name goes to
    ``transformers``: a local folder in Hugging Face's layout, or a model of the hub, "owner/name",
    for which alone the network is asked; its forward returns an object with ``.logits``.

    Raises:
        CorruptCheckpoint: a shipped file is missing or damaged.
        ValueError: nothing of that name, here or at the hub; no such device or dtype.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise ValueError(f"a model's name is text, got {name!r}")
    known, name = names(folder), str(name)
    if name in known:
        for file in CHECKED:
            verify(f"{name}/{file}", folder)
        return place(load_unchecked(folder / name).to(chosen_dtype(dtype)), device)
    missing = f"no model {name!r} in the zoo ({', '.join(known)})"
    if not (name and Path(name).is_dir()) and not HUB_NAME.fullmatch(name):
        raise ValueError(
            f"{missing}{nearest(name, known)}; a model elsewhere is a folder that exists, or "
            '"owner/name" at the hub'
        )
    return place(_load_with_transformers(name, missing, chosen_dtype(dtype)), device)


def _load_with_transformers(name: str, missing: str, dtype: torch.dtype) -> nn.Module:
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise ValueError(f"{missing}, and transformers is not installed") from error
    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype=dtype).eval()
    except (OSError, ValueError) as error:
        raise ValueError(f"{missing}, and transformers could not load it: {error}") from error
