"""Numbers and figures of the chapter on quantization, measured on the shipped model.

    python benchmarks/lab01_tables.py            writes course/chapters/_generated/lab01_*.md
                                                 and course/figures/lab01/*.svg, prints the table

Everything is deterministic but for the order of float sums; run it again whenever the checkpoint
changes.  Takes some minutes on two cores, most of them for the k-means codebooks.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.plots import grid, matrices, pareto, style
from efflib.quantization.linear import (
    affine_parameters,
    dequantize_weight,
    fake_quantize,
    quantize_weight,
)
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import model_bits, quantizable_linears

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab01"
TOKENS, CONTEXT = 8192, 256  # held-out tokens, in disjoint windows
WIDTHS = (8, 4, 3, 2)
GRANULARITIES = {"tensor": "tensor", "channel": "channel", "group 32": 32}
METHODS = {"linear": "linear", "k-means": "kmeans"}
CLOSE = (1.02, 1.05, 1.10)  # "as good as fp16": at most this times its perplexity
STEPS, RATES = 150, (0.003, 0.03)  # of training through the rounding, see train_layer


def perplexity(model: nn.Module, split: str = "code") -> float:
    return zoo.perplexity(model, split=split, tokens=TOKENS, context=CONTEXT, stride=CONTEXT)


def sweep(model: nn.Module) -> list[pareto.Point]:
    """Total bits per parameter and perplexity of every setting; prints a line for each."""
    parameters, points = sum(p.numel() for p in model.parameters()), []
    for method, key in METHODS.items():
        for bits in WIDTHS:
            for name, granularity in GRANULARITIES.items():
                quantized, total = quantize_model(model, bits, granularity, method=key)
                size, cost = total / parameters, perplexity(quantized)
                points.append(pareto.Point(method, name, bits, size, cost))
                print(f"{method:8s} {bits} bits {name:9s} {size:7.2f} {cost:9.2f}", flush=True)
    return points


# ---- text ------------------------------------------------------------------------------------


def table(points: list[pareto.Point], reference: float) -> str:
    """A row per method and width, a pair of columns per granularity; bold: on the front."""
    best = pareto.front(points)
    found = {(p.method, p.bits, p.granularity): p for p in points}
    lines = [
        "| method | bits | " + " | ".join(f"{g}: size | perplexity" for g in GRANULARITIES) + " |",
        "|---" * (2 + 2 * len(GRANULARITIES)) + "|",
        f"| fp16 | 16 | 16.00 | {reference:.2f} |" + " | |" * (len(GRANULARITIES) - 1),
    ]
    for method in METHODS:
        for bits in WIDTHS:
            cells = []
            for granularity in GRANULARITIES:
                p = found[method, bits, granularity]
                mark = "**" if p in best else ""
                cells += [f"{p.size:.2f}", f"{mark}{p.cost:.2f}{mark}"]
            lines.append(f"| {method} | {bits} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def findings(model: nn.Module, points: list[pareto.Point], reference: float, trained: dict) -> str:
    """The sentences of the chapter that hold measured numbers."""
    parameters = sum(p.numel() for p in model.parameters())
    layers = quantizable_linears(model)
    share = sum(layer.weight.numel() for layer in layers.values()) / parameters
    lines = [
        f"- The model has {parameters / 1e6:.2f} million parameters, {share:.0%} of them in "
        f"the {len(layers)} linear layers to quantize; {model_bits(model) / 8e6:.2f} MB in fp16. "
        f"Perplexity of fp16: {reference:.2f} on held-out code, "
        f"{perplexity(model, 'prose'):.2f} on prose ({TOKENS} tokens each, context {CONTEXT}).",
    ]
    for limit in CLOSE:
        good = [p for p in points if p.cost <= limit * reference]
        if good:
            p = min(good, key=lambda p: p.size)
            lines.append(
                f"- Smallest setting at most {limit - 1:.0%} worse than fp16: {p.bits} bits, "
                f"{p.method}, per {p.granularity}: {p.size:.2f} bits a parameter."
            )
    rounded = next(iter(trained.values()))[0]
    after = " and ".join(f"{error:.3f} at rate {rate}" for rate, (_, error) in trained.items())
    lines.append(
        f"- One attention output layer at 2 bits per channel, relative squared output error on "
        f"inputs not used for training: {rounded:.3f} after rounding; after {STEPS} steps of "
        f"training through the rounding {after} (in standard deviations of the weights, falling "
        "to 0)."
    )
    return "\n".join(lines) + "\n"


# ---- training through the rounding -----------------------------------------------------------


def inputs_of(model: nn.Module, layer: nn.Linear) -> Tensor:
    """Inputs [tokens, K] of a layer on 2048 tokens of held-out code."""
    seen: list[Tensor] = []
    hook = layer.register_forward_hook(lambda module, args, output: seen.append(args[0].detach()))
    zoo.perplexity(model, split="code", tokens=2048, context=128, stride=128)
    hook.remove()
    return torch.cat([part.flatten(0, -2) for part in seen])


def train_layer(w: Tensor, inputs: Tensor, rate: float) -> tuple[float, float]:
    """Relative output error of w [N, K] at 2 bits: rounded, and trained through the rounding.

    rate: learning rate at the start, in standard deviations of w.  Half of the inputs train, the
    other half measures.
    """
    scale, zero = affine_parameters(*w.aminmax(dim=1, keepdim=True), 2, symmetric=False)

    def error(v: Tensor, x: Tensor) -> Tensor:
        v_hat = fake_quantize(v, scale, zero, 2, symmetric=False)
        return ((v_hat - w) @ x.T).square().mean() / (w @ x.T).square().mean()

    trained = w.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([trained], lr=rate * w.std().item())
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        error(trained, inputs[::2]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return error(w, inputs[1::2]).item(), error(trained, inputs[1::2]).item()


# ---- figures ---------------------------------------------------------------------------------


def save_figures(model: nn.Module, points: list[pareto.Point], reference: float) -> None:
    name, layer = next(iter(quantizable_linears(model).items()))
    w = layer.weight.detach()

    def round_trip(bits: int, granularity: str | int) -> Tensor:
        return dequantize_weight(quantize_weight(w, bits, granularity))

    median = ((w.amax(1) - w.amin(1)) / (w.max() - w.min())).median().item()
    style.save(
        matrices.row_ranges(w, f"{name}: the median row needs {median:.0%} of the tensor's range"),
        FIGURES / "rows.svg",
        "Range of every row of a weight, sorted, inside the range of the whole weight",
    )
    style.save(
        matrices.before_after(w[:6, :8], round_trip(3, "channel")[:6, :8], "3 bits per channel"),
        FIGURES / "matrix.svg",
        "A corner of a weight before and after 3-bit quantization, and the error",
    )
    levels = {"tensor": round_trip(3, "tensor")[0], "channel": round_trip(3, "channel")[0]}
    style.save(
        grid.histogram_with_grid(w[0], levels, "3 bits: levels that the first row uses"),
        FIGURES / "levels.svg",
        "Histogram of a row with the levels of a tensor-wide and of its own grid",
    )
    best = min((p for p in points if p.cost <= CLOSE[-1] * reference), key=lambda p: p.size)
    style.save(
        pareto.tradeoff(
            [p for p in points if p.size < 17],
            f"Smallest within {CLOSE[-1] - 1:.0%} of fp16: {best.bits} bits, {best.method}, "
            f"{best.granularity}, {best.size:.1f} bits a parameter",
            "total bits per parameter: codes, scales, tables; the rest in 16 bits",
            "perplexity on held-out code",
            reference=(16, reference),
            ceiling=2.5 * reference,
        ),
        FIGURES / "pareto.svg",
        "Perplexity against total bits per parameter for linear and k-means quantization",
    )
    save_gradient()


def save_gradient() -> None:
    x = torch.linspace(-1.6, 2.6, 800)
    steps = torch.round(x / 0.5)
    inside = ((steps >= -2) & (steps <= 4)).float()
    style.save(
        grid.lines(
            x,
            [{"x": x, "x_hat": steps.clamp(-2, 4) * 0.5}, {"true": 0 * x, "estimate": inside}],
            "The staircase has no slope between its jumps; the estimate is 1 inside the range",
            "x",
            ["forward", "backward: derivative"],
        ),
        FIGURES / "gradient.svg",
        "Staircase of a quantizer, its true derivative 0 and the straight-through estimate",
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


def main() -> None:
    torch.manual_seed(0)
    model = zoo.load("target")
    reference = perplexity(model)
    print(f"fp16 perplexity {reference:.2f}; bits per parameter and perplexity of the rest:")
    points = sweep(model)
    outputs = [m for name, m in quantizable_linears(model).items() if name.endswith("o_proj")]
    layer = outputs[len(outputs) // 2]
    w, inputs = layer.weight.detach(), inputs_of(model, layer)
    trained = {rate: train_layer(w, inputs, rate) for rate in RATES}
    write(GENERATED / "lab01_table.md", table(points, reference))
    write(GENERATED / "lab01_findings.md", findings(model, points, reference, trained))
    save_figures(model, points, reference)


if __name__ == "__main__":
    main()
