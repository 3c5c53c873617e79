"""The command of `any_model`: text, sizes that are said before, results as JSON."""

import argparse
import hashlib
import json
import platform
from pathlib import Path

import torch
from torch import Tensor

from efflib.device import DTYPES, chosen_device, chosen_dtype
from efflib.models.streamed import StreamedModel
from efflib.zoo.own_model import folder_of, in_pieces, token_ids
from efflib.zoo.phenomena.any_model import measure
from efflib.zoo.phenomena.ways import ways

RESULTS = Path("results")


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("on a model of one's own")
    group.add_argument(
        "--model", help="a folder with config.json, safetensors, tokenizer.json, or owner/name"
    )
    group.add_argument("--text", type=Path, help="half of it calibrates, half is held out")
    group.add_argument("--device", help="cpu, cuda, auto; if not given what EFFLIB_DEVICE says")
    group.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    group.add_argument("--group", type=int, default=128, help="weights that share a scale")
    group.add_argument("--length", type=int, default=512, help="tokens of a text")
    group.add_argument("--texts", type=int, default=16, help="at most, of each half")
    group.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")


def run(story: str, options: argparse.Namespace) -> Path:
    """Measure a story on the model and write its JSON file; returns where."""
    told = ways(story, options.group)
    device = str(chosen_device(options.device))
    streamed = StreamedModel(folder_of(options.model), chosen_dtype(options.dtype), device)
    calibration, held_out = split(ids_of(streamed.folder, options), options)
    print("\n".join(needs(streamed, told, calibration, held_out)))
    options.results.mkdir(parents=True, exist_ok=True)
    name = f"{story}-{Path(options.model).resolve().name}"
    name += "" if device == "cpu" else f"-{device.replace(':', '')}"
    kept = options.results / f"{name}.state.pt"
    blocks = len(streamed.decoder.blocks)
    from tqdm import tqdm  # a sandbox has none, and imports this module

    with tqdm(total=blocks * (1 + len(told)), unit="way", desc=name) as bar:

        def done(count: int, way: str) -> None:
            bar.set_postfix_str(way, refresh=False)
            bar.update(count - bar.n)

        losses = measure(streamed, told, calibration, held_out, kept, bar.write, done=done)
    for way, loss in losses.items():
        print(f"    {way:20s} {loss:8.4f}  {loss - losses['float']:+8.4f}")
    file = options.results / f"{name}.json"
    file.write_text(json.dumps(report(story, streamed, options, losses), indent=2) + "\n")
    kept.unlink(missing_ok=True)
    print(f"written: {file}")
    return file


def ids_of(folder: Path, options: argparse.Namespace) -> Tensor:
    """The text in the tokens of the model's tokenizer.json. [tokens]"""
    return token_ids(folder, options.text.read_text(encoding="utf-8"))


def split(ids: Tensor, options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """(calibration [n, T], held out [n, T + 1]), from the first and the last half of the text."""
    first, last = ids.tensor_split(2)
    try:
        return (
            in_pieces(first, options.length, options.texts),
            in_pieces(last, options.length + 1, options.texts),
        )
    except ValueError as error:
        raise ValueError(
            f"the text has {len(ids)} tokens: two texts of {options.length} need more"
        ) from error


def needs(streamed: StreamedModel, told: dict, calibration: Tensor, held_out: Tensor) -> list[str]:
    """What is said before anything is computed; minutes are said after the first block."""
    c, size = streamed.model.config, streamed.dtype.itemsize
    blocks = streamed.model.get_submodule(streamed.decoder.family.blocks)
    block = max(sum(p.numel() for p in b.parameters()) for b in blocks)
    tokens = calibration.numel() + held_out.numel()
    states = 2 * (1 + len(told)) * tokens * c.hidden_size * size
    embedding = c.vocab_size * c.hidden_size * size
    gib = 2**30
    return [
        f"{streamed.folder}: {streamed.bytes / gib:.2f} GiB of weights, {len(blocks)} blocks",
        f"in memory at a time: a block and a copy, {2 * block * size / gib:.2f} GiB; hidden "
        f"states, {states / gib:.2f} GiB; the embedding, at the ends, {embedding / gib:.2f} GiB",
        "GPTQ and SparseGPT: K x K numbers of 8 bytes for each linear, and some five more at once",
        "minutes are said after the first block",
    ]


def report(story: str, streamed: StreamedModel, options, losses: dict[str, float]) -> dict:
    """What was measured, of what, with what."""
    import transformers

    on_gpu = streamed.device.startswith("cuda")
    files = sorted(p for p in streamed.folder.iterdir() if p.suffix in (".json", ".safetensors"))
    return {
        "story": story,
        "model": {
            "name": Path(options.model).resolve().name,
            "model_type": streamed.decoder.model_type,
            "sha256": {p.name: _sha256(p) for p in files},
        },
        "text": {"name": options.text.name, "sha256": _sha256(options.text)},
        "setting": {"device": streamed.device}
        | {key: getattr(options, key) for key in ("dtype", "group", "length", "texts")},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        | ({"gpu": torch.cuda.get_device_name(streamed.device)} if on_gpu else {}),
        "losses": losses,
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
