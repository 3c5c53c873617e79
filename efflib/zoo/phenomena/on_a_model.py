"""The command of `any_model`: text, sizes that are said before, results as JSON."""

import argparse
import hashlib
import json
import platform
from pathlib import Path

import torch
from torch import Tensor

from efflib.models.streamed import StreamedModel
from efflib.zoo.phenomena.any_model import measure
from efflib.zoo.phenomena.ways import ways

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
RESULTS = Path("results")


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("on a model of one's own")
    group.add_argument("--model", help="a folder with config.json, safetensors and tokenizer.json")
    group.add_argument("--text", type=Path, help="half of it calibrates, half is held out")
    group.add_argument("--device", default="cpu")
    group.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    group.add_argument("--group", type=int, default=128, help="weights that share a scale")
    group.add_argument("--length", type=int, default=512, help="tokens of a text")
    group.add_argument("--texts", type=int, default=16, help="at most, of each half")
    group.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")


def run(story: str, options: argparse.Namespace) -> Path:
    """Measure a story on the model and write its JSON file; returns where."""
    told = ways(story, options.group)
    streamed = StreamedModel(options.model, DTYPES[options.dtype], options.device)
    calibration, held_out = split(ids_of(options), options)
    print("\n".join(needs(streamed, told, calibration, held_out)))
    options.results.mkdir(parents=True, exist_ok=True)
    name = f"{story}-{streamed.folder.resolve().name}"
    kept = options.results / f"{name}.state.pt"
    losses = measure(streamed, told, calibration, held_out, kept, lambda line: print(line))
    for way, loss in losses.items():
        print(f"    {way:20s} {loss:8.4f}  {loss - losses['float']:+8.4f}")
    file = options.results / f"{name}.json"
    file.write_text(json.dumps(report(story, streamed, options, losses), indent=2) + "\n")
    kept.unlink(missing_ok=True)
    print(f"written: {file}")
    return file


def ids_of(options: argparse.Namespace) -> Tensor:
    """The text in the tokens of the model's tokenizer.json. [tokens]"""
    from tokenizers import Tokenizer

    file = Path(options.model) / "tokenizer.json"
    if not file.is_file():
        raise ValueError(f"{options.model} has no tokenizer.json")
    text = options.text.read_text(encoding="utf-8")
    return torch.tensor(Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids)


def split(ids: Tensor, options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """(calibration [n, T], held out [n, T + 1]), from the first and the last half of the text."""
    first, last = ids.tensor_split(2)
    found = []
    for half, length in ((first, options.length), (last, options.length + 1)):
        count = min(options.texts, len(half) // length)
        if not count:
            raise ValueError(
                f"the text has {len(ids)} tokens: two texts of {options.length} need more"
            )
        found.append(half[: count * length].view(count, length))
    return found[0], found[1]


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

    files = sorted(p for p in streamed.folder.iterdir() if p.suffix in (".json", ".safetensors"))
    return {
        "story": story,
        "model": {
            "name": streamed.folder.resolve().name,
            "model_type": streamed.decoder.model_type,
            "sha256": {p.name: _sha256(p) for p in files},
        },
        "text": {"name": options.text.name, "sha256": _sha256(options.text)},
        "setting": {
            key: getattr(options, key) for key in ("device", "dtype", "group", "length", "texts")
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "losses": losses,
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
