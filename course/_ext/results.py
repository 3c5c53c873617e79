"""The page of results: every file of benchmarks/results/ as it was written, {results}.

Four kinds of files: a story on a model ("story", efflib.zoo.phenomena with --model), memory of a
run ("ways", benchmarks/own_model.py), a GPU's parts ("parts", benchmarks/gpu.py), and times of
kernels ("rows", benchmarks/kernels.py), of which the chapter has the tables.
"""

import json
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
NONE = "No file yet: the commands are on [the page about a model of your own](own_model.md)."


def table(header: tuple[str, ...], rows: list[tuple]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(value: object) -> str:
    return str(value).replace("|", "/").replace("\n", " ")


def listed(facts: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items())


def story(found: dict) -> str:
    losses, model, text = found["losses"], found["model"], found["text"]
    rows = [(way, f"{x:.4f}", f"{x - losses['float']:+.4f}") for way, x in losses.items()]
    hashes = {name: digest[:12] for name, digest in model["sha256"].items()}
    weights = {name: digest for name, digest in hashes.items() if name.endswith("safetensors")}
    return "\n\n".join(
        [
            f"## {found['story']}: {model['name']}",
            f"A {model['model_type']}, {listed(found['setting'])}; text {text['name']}, sha256 "
            f"{text['sha256'][:12]}.",
            table(("way", "loss, nats a token", "added"), rows),
            f"{listed(found['versions'])}; sha256 of {listed(weights)}.",
        ]
    )


def memory(found: dict) -> str:
    weights = found["weights_bytes"]
    rows = [
        (way, f"{row['peak_bytes'] / 1e9:.2f}", f"{row['peak_bytes'] / weights:.2f}")
        for way, row in found["ways"].items()
    ]
    return "\n\n".join(
        [
            "## Memory, block by block",
            f"A Llama of random parameters, {weights / 1e9:.2f} GB of weights; blocks gone "
            f"through: {found['blocks']} of {found['config']['num_hidden_layers']}.",
            table(("way", "most memory of the process, GB", "times the weights"), rows),
            f"{listed(found['versions'])}.",
        ]
    )


def parts(found: dict) -> str:
    rows = [
        (
            name,
            "right" if part["right"] else "**wrong**",
            part["seconds"],
            part.get("said", [""])[-1:],
        )
        for name, part in found["parts"].items()
    ]
    rows = [(*row[:3], *(row[3] or [""])) for row in rows]
    head = [f"## {found['gpu']}", table(("part", "", "seconds", "its last line"), rows)]
    return "\n\n".join([*head, f"{listed(found['versions'])}."])


def kernels(found: dict) -> str:
    timed = sum(row["ms"] is not None for row in found["rows"])
    return (
        f"## Kernels on {found['environment']['gpu']}\n\n"
        f"{timed} of {len(found['rows'])} contenders timed; "
        f"{listed(found['environment']['versions'])}."
    )


KINDS = {"story": story, "ways": memory, "parts": parts, "rows": kernels}


def text(path: Path) -> str:
    """MyST text of a file.  Raises ValueError, with its name, for one of another form."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        (kind,) = [kind for kind in KINDS if kind in found]
        made = KINDS[kind](found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is no file of results: {error!r}") from error
    return f"{made}\n\n`benchmarks/results/{path.name}`\n"


def page(folder: Path = RESULTS) -> str:
    """All files, in the order of their names."""
    return "\n".join(text(path) for path in sorted(folder.glob("*.json"))) or NONE
