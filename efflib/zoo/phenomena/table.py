"""A story as a section of the table: what was claimed, and the figures that it rests on."""

from types import ModuleType
from typing import NamedTuple

from efflib.models.checkpoint import WEIGHTS_FILE
from efflib.plots.style import number
from efflib.zoo.checkpoints import FOLDER, sha256
from efflib.zoo.phenomena import module
from efflib.zoo.phenomena.story import Claim, Mean


class Judged(NamedTuple):
    """A claim as the worst of the seeds has it, and the mean of its values."""

    claim: Claim
    mean: float


def section(name: str, figures: dict[str, Mean], claims: list[Judged], seeds: int) -> str:
    """Markdown with the claims, the picture and the figures of a story."""
    story = module(name)
    lines = [
        f"## {name}",
        "",
        (story.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "",
        f"| claim | mean of {seeds} | worst | wanted | holds |",
        "|---|---|---|---|---|",
        *(row(claim, mean) for claim, mean in claims),
        "",
        f"```{{figure}} ../figures/phenomena/{name}.svg",
        f":alt: {alt(name, claims)}",
        "```",
        "",
        *measured(story, figures),
        "",
        f"Measured on `target` {target_hash()}.",
        "",
    ]
    return "\n".join(lines)


def row(claim: Claim, mean: float) -> str:
    holds = "yes" if claim.holds else "**no**"
    return f"| {escaped(claim.text)} | {mean:.3f} | {claim.value:.3f} | {claim.bar:.3f} | {holds} |"


def escaped(text: str) -> str:
    """|X| would end a cell of the table."""
    return text.replace("|", r"\|")


def alt(name: str, claims: list[Judged]) -> str:
    """A text for those who do not see the figure: the claims that hold."""
    return f"{name}: " + "; ".join(claim.text for claim, _ in claims if claim.holds)


def target_hash() -> str:
    """The first digits of the hash of target's weights."""
    return sha256(FOLDER / "target" / WEIGHTS_FILE)[:12]


def measured(story: ModuleType, figures: dict[str, Mean]) -> list[str]:
    """A column for each of the story's MODELS, and a sentence with the other figures."""
    models = getattr(story, "MODELS", {})
    rest = {k: v for k, v in figures.items() if not k.startswith(tuple(f"{m} " for m in models))}
    lines = [", ".join(f"{key} {interval(value)}" for key, value in rest.items())] if rest else []
    if not models:
        return lines
    names = [k.removeprefix(f"{m} ") for m in models for k in figures if k.startswith(f"{m} ")]
    heads = [escaped(title) for title in models.values()]
    table = ["| | " + " | ".join(heads) + " |", "|---" * (1 + len(models)) + "|"]
    for name in dict.fromkeys(names):
        cells = [figures.get(f"{model} {name}") for model in models]
        shown = ["" if value is None else interval(value) for value in cells]
        table.append(f"| {escaped(name)} | " + " | ".join(shown) + " |")
    return [*table, "", *lines]


def interval(value: Mean) -> str:
    """13.3 (12.9-13.8): the mean, and the lowest and highest of the seeds."""
    low, high = number(value.low), number(value.high)
    return number(value) + ("" if low == high else f" ({low} to {high})")
