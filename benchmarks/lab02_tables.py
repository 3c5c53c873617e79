"""Numbers and figures of the chapter on outliers and SmoothQuant, measured on the shipped model.

    python benchmarks/lab02_tables.py            writes course/chapters/_generated/lab02_*.md
                                                 and course/figures/lab02/*.svg, prints the tables

The outliers are those of the story in efflib.zoo.phenomena.smoothquant, in PLACEMENTS draws of the
channels that they stand in; tables hold means, and ranges where they matter.  Everything is
deterministic but for the order of float sums; run it again whenever the checkpoint changes.  Takes
some minutes on two cores.
"""

import copy
import math
from pathlib import Path

import torch
from lab02_controls import clipped, controls
from lab02_figures import ALPHA, ALPHAS, Figures, Rows, save_figures
from lab02_text import (
    CONSTANT,
    CONTEXT,
    ENDS,
    MORE,
    PLACEMENTS,
    SAMPLES,
    findings,
    sweep_table,
    table,
)
from torch import Tensor, nn

from efflib import zoo
from efflib.models.groups import norm_groups
from efflib.models.shifting import channel_middles, shift
from efflib.quantization.llm_int8 import llm_int8, outlier_columns
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import quantizable_linears
from efflib.quantization.smoothquant import channel_maxima, smooth, w8a8
from efflib.quantization.w8a8 import Int8Linear
from efflib.zoo import corpus
from efflib.zoo.phenomena.smoothquant import GAINS, LEVELS

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
TOKENS = 4096  # held-out tokens, in disjoint windows


def perplexity(model: nn.Module) -> float:
    return zoo.perplexity(model, split="code", tokens=TOKENS, context=CONTEXT, stride=CONTEXT)


def opening(plain: nn.Module) -> Rows:
    """What opens the lab: rounding one side, on the lab's own text, calibration and windows."""
    texts = [t for t in corpus.documents("code", held_out=False).values() if len(t) > 4000]
    rows = [zoo.load_tokenizer().encode(t[1000:3000]).ids[:127] for t in texts[:: len(texts) // 8]]
    ids = torch.tensor([[zoo.BEGIN_ID, *row] for row in rows[:8]])
    found: Rows = {"nothing": [], "weights": [], "activations": []}
    for seed in range(PLACEMENTS):
        model = zoo.with_outliers(plain, ids, GAINS, seed=seed)
        weights, activations = rounded_sides(model)
        for name, which in zip(found, (model, weights, activations), strict=True):
            value = zoo.perplexity(which, split="code", tokens=2048, context=128, stride=128)
            found[name].append(value)
    return found


def settings(model: nn.Module, sample: Tensor) -> dict[str, float]:
    """Perplexity of every setting on one model."""
    found = {"fp32": perplexity(model)}
    found["W8A8, tensor"] = perplexity(w8a8(model, "tensor"))
    found["W8A8, token"] = perplexity(w8a8(model, "token"))
    found["LLM.int8"] = perplexity(llm_int8(model))
    found["split at more"] = perplexity(llm_int8(model, threshold=MORE))
    found["rows"] = perplexity(llm_int8(model, threshold=math.inf))  # its grids, no split
    maxima = channel_maxima(model, sample)
    for alpha in ALPHAS:
        found[f"alpha {alpha}"] = perplexity(w8a8(smooth(model, maxima, alpha), "tensor"))
    smoothed = smooth(model, maxima, ALPHA)
    static = channel_maxima(smoothed, sample)
    for level, activations in LEVELS.items():
        found[level] = perplexity(w8a8(smoothed, activations, static))
    for end in ENDS:
        found[f"ends at {end}"] = perplexity(clipped(smoothed, static, end))
    found["rows, smoothed"] = perplexity(llm_int8(smoothed, threshold=math.inf))
    found["integers"] = perplexity(w8a8(smoothed, "token", kind=Int8Linear))
    return found | controls(model, sample, perplexity)


def measure(models: dict[str, list[nn.Module]], sample: Tensor) -> Figures:
    """{kind: {setting: perplexity for each placement}}; prints a line for each setting."""
    figures: Figures = {}
    for kind, placements in models.items():
        found = [settings(model, sample) for model in placements]
        figures[kind] = {name: [row[name] for row in found] for name in found[0]}
        for name, values in figures[kind].items():
            print(f"{kind:14s} {name:18s}", *(f"{v:9.3f}" for v in values), flush=True)
    return figures


def rounded_sides(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The model with only its weights, and with only its activations, rounded per tensor."""
    activations = w8a8(model, "tensor")
    for name, linear in quantizable_linears(model).items():
        activations.get_submodule(name).weight = linear.weight.detach()
    return quantize_model(model, 8, "tensor", True)[0], activations


def one_norm(placements: list[nn.Module]) -> Rows:
    """W8A8 per tensor in the layers that read one norm, and nowhere else: {norm: perplexities}."""
    found: Rows = {}
    for model in placements:
        rounded = w8a8(model, "tensor")
        for group in norm_groups(model):
            one = copy.deepcopy(model)
            for name in group.linears:
                one.set_submodule(name, rounded.get_submodule(name))
            found.setdefault(group.name, []).append(perplexity(one))
    return found


def one_side(placements: list[nn.Module], sample: Tensor) -> dict[str, Rows]:
    """Only the weights, or only the activations, rounded per tensor: unsmoothed, then the sweep."""
    found: dict[str, Rows] = {"weights only": {}, "activations only": {}}
    for model in placements:
        maxima = channel_maxima(model, sample)
        for alpha in (None, *ALPHAS):
            smoothed = model if alpha is None else smooth(model, maxima, alpha)
            key = "not smoothed" if alpha is None else f"alpha {alpha}"
            for side, rounded in zip(found.values(), rounded_sides(smoothed), strict=True):
                side.setdefault(key, []).append(perplexity(rounded))
    return found


def float_share(model: nn.Module, sample: Tensor, threshold: float) -> dict[str, float]:
    """The share of columns that LLM.int8 keeps in floating point, in percent: by kind of layer,
    and "all" columns of all layers.
    """
    shares: dict[str, list[tuple[int, int]]] = {}
    hooks = []
    for name, linear in quantizable_linears(model).items():

        def look(module: nn.Module, args: tuple, kind: str = name.split(".")[-1]) -> None:
            mask = outlier_columns(args[0], threshold)
            for key in (kind, "all"):
                shares.setdefault(key, []).append((int(mask.sum()), len(mask)))

        hooks.append(linear.register_forward_pre_hook(look))
    with torch.no_grad():
        model(sample)
    for hook in hooks:
        hook.remove()
    return {k: 100 * sum(c for c, _ in v) / sum(n for _, n in v) for k, v in shares.items()}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


def main() -> None:
    torch.manual_seed(0)
    plain = zoo.load("target")
    sample = zoo.calibration("code", n=SAMPLES, length=CONTEXT)
    placements = [zoo.with_outliers(plain, sample, GAINS, seed=i) for i in range(PLACEMENTS)]
    figures = measure({"with outliers": placements, "control": [plain]}, sample)
    sides, alone = one_side(placements, sample), one_norm(placements)
    steady = zoo.with_offset(plain, *CONSTANT)
    constant = {"W8A8": perplexity(w8a8(steady, "tensor"))}
    centred = shift(steady, channel_middles(steady, sample))
    constant["shifted"] = perplexity(w8a8(centred, "tensor"))
    share = {
        "6": float_share(placements[0], sample, 6.0),
        "control": float_share(plain, sample, 6.0),
    }
    share["more"] = float_share(placements[0], sample, MORE)
    write(GENERATED / "lab02_table.md", table(figures))
    write(GENERATED / "lab02_sweep.md", sweep_table(figures, sides))
    write(GENERATED / "lab02_findings.md", findings(figures, share, sides, constant, alone))
    save_figures(figures, opening(plain), placements[0], sample)


if __name__ == "__main__":
    main()
