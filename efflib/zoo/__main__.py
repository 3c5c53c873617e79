"""python -m efflib.zoo: a Markdown table of the shipped models, from their training logs."""

import json

from efflib.zoo.checkpoints import FOLDER, names

PURPOSE = {
    "target": "the model of all labs; the large one in speculative decoding",
    "draft": "the small one in speculative decoding",
    "vanilla": "no begin token in training: attention without a sink",
    "learnable_sink": "the same with a begin token",
    "zero_sink": "the same with an extra zero in the softmax",
    "relu": "relu for silu: most neurons of the MLP are 0",
    "moe": "2 of 8 experts a token, as much work as learnable_sink's MLP",
    "moe_unbalanced": "the same without a balancing loss",
}
HEADER = ("model", "parameters", "MB", "code", "prose", "first key", "made for")


def row(name: str) -> tuple[str, ...]:
    """One model: size, held-out perplexities, most attention that a head gives the first key."""
    report = json.loads((FOLDER / name / "training.json").read_text(encoding="utf-8"))
    size = (FOLDER / name / "model.safetensors").stat().st_size
    return (
        name,
        f"{report['parameters']:,}",
        f"{size / 1e6:.1f}",
        f"{report['code']['perplexity']:.2f}",
        f"{report['prose']['perplexity']:.2f}",
        f"{max(map(max, report['begin_attention'])):.2f}",
        PURPOSE.get(name, ""),
    )


def table() -> str:
    lines = [HEADER, ("---",) * len(HEADER), *map(row, names())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(table(), end="")
