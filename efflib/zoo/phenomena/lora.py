"""Fine-tuning: a model of Python learns C++, with all its weights or with a few.

The new text is the C++ headers that torch carries (torch/include/c10), which no model of the zoo
has seen. Perplexity on held-out headers: frozen, LoRA of rank 1 and 4 beside every linear of the
blocks, all weights; QLoRA of rank 4 against LoRA of rank 4; and what each forgets of Python code.

Control: the same LoRA of rank 4, trained as long, on code instead of headers. What helps is the
new text, not another pass of training.

Why not the zoo's prose: it is in the training text of the target four times in each pass, and there
is little of it. Training on it again does not help the held-out prose at any learning rate tried
(a target of 17 M tokens: 18.03, 18.00, 18.07 at 3e-5, 1e-4, 3e-4, from 18.0).

"LoRA learns less and forgets less" (Biderman et al. 2024, arXiv:2405.09673) shows in both halves.

Learning rates: the best of SWEEP on headers that are neither trained on nor held out, seed 0, at
the steps of FULL (`sweep`). Perplexities: full 10.2, 9.2, 9.9, 12.4; r=1 12.1, 11.4, 11.7, 12.6;
r=4 11.1, 10.6, 12.1, 93.4. QLoRA takes the rate of LoRA.
"""

from torch import Tensor, nn

from efflib import zoo
from efflib.finetuning.lora import add_lora, trainable_parameters
from efflib.finetuning.qlora import add_qlora
from efflib.finetuning.training import finetune
from efflib.plots.style import BLUE, GREY, ORANGE
from efflib.zoo.headers import headers, pieces
from efflib.zoo.phenomena.story import Claim, Scale, perplexity, windows
from efflib.zoo.tokenizer import text_ids

TARGETS = ("self_attn", "mlp")
BATCH, LENGTH = 4, 64  # of a step
STEPS = 0.4  # of scale.steps
SWEEP = {
    "full": (3e-4, 1e-3, 2e-3, 4e-3),
    "LoRA r=1": (3e-3, 1e-2, 2e-2, 4e-2),
    "LoRA r=4": (3e-3, 1e-2, 2e-2, 4e-2),
}
RATES = {"full": 1e-3, "LoRA r=1": 1e-2, "LoRA r=4": 1e-2}
METHODS = ("LoRA r=1", "LoRA r=4", "full")


def batches(text: Tensor, scale: Scale, seed: int) -> tuple[Tensor, ...]:
    """One batch [BATCH, 1 + LENGTH] for every step."""
    steps = round(STEPS * scale.steps)
    return pieces(text, steps * BATCH, LENGTH, seed).split(BATCH)


def prepared(model: nn.Module, method: str, seed: int) -> nn.Module:
    """The model with what the method trains; alpha = 2 r."""
    if method == "full":
        return model
    r = int(method.rpartition("=")[2])
    add = add_qlora if method.startswith("QLoRA") else add_lora
    return add(model, r, 2 * r, TARGETS, seed=seed)


def sweep(scale: Scale, seed: int = 0) -> dict[tuple[str, float], float]:
    """{(method, learning rate): perplexity on the headers set aside for this}."""
    model, data = zoo.load("target"), batches(headers("training"), scale, seed)
    text = pieces(headers("sweep"), scale.windows, scale.length, seed)
    return {
        (method, lr): perplexity(finetune(prepared(model, method, seed), data, lr)[0], text)
        for method, rates in SWEEP.items()
        for lr in rates
    }


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """{"<method>": perplexity on headers, "<method>, code": on code, "<method>, trained": share}"""
    model = zoo.load("target")
    code = windows("code", True, scale, seed)
    new = pieces(headers("held out"), scale.windows, scale.length, seed)
    total = trainable_parameters(model)
    figures = {"frozen": perplexity(model, new), "frozen, code": perplexity(model, code)}

    def run(name: str, method: str, lr: float, text: Tensor) -> None:
        start = prepared(model, method, seed)
        trained, _ = finetune(start, batches(text, scale, seed), lr, seed)
        figures[name] = perplexity(trained, new)
        figures[f"{name}, code"] = perplexity(trained, code)
        figures[f"{name}, trained"] = trainable_parameters(start) / total

    for method in METHODS:
        run(method, method, RATES[method], headers("training"))
    run("QLoRA r=4", "QLoRA r=4", RATES["LoRA r=4"], headers("training"))
    run("control r=4", "LoRA r=4", RATES["LoRA r=4"], text_ids("code", held_out=False))
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    return [
        Claim("new text: perplexity frozen / LoRA r=1", f["frozen"] / f["LoRA r=1"], 1.0),
        Claim("new text: LoRA r=1 / r=4", f["LoRA r=1"] / f["LoRA r=4"], 1.0),
        Claim("new text: LoRA r=4 / full", f["LoRA r=4"] / f["full"], 1.0),
        Claim("QLoRA within 3 %: LoRA / QLoRA", f["LoRA r=4"] / f["QLoRA r=4"], 1 / 1.03),
        Claim(
            "control, code instead of the new text: share of LoRA's gain that is missing",
            (f["control r=4"] - f["LoRA r=4"]) / (f["frozen"] - f["LoRA r=4"]),
            0.9,
        ),
        Claim(
            "forgetting, code: perplexity after LoRA r=4 / before",
            f["LoRA r=4, code"] / f["frozen, code"],
            1.0,
        ),
        Claim(
            "forgetting, code: perplexity full / LoRA r=1",
            f["full, code"] / f["LoRA r=1, code"],
            1.0,
        ),
    ]


def plot(figures: dict[str, float], axes: list) -> None:
    left, right = axes
    shares = [100 * figures[f"{m}, trained"] for m in METHODS]
    left.plot(shares, [figures[m] for m in METHODS], marker="o", color=BLUE, label="trained")
    left.plot(
        [100 * figures["QLoRA r=4, trained"]],
        [figures["QLoRA r=4"]],
        marker="s",
        linestyle="",
        color=ORANGE,
        label="QLoRA r=4",
    )
    left.axhline(figures["frozen"], color=GREY, linestyle="--", label="frozen")
    for share, method in zip(shares, METHODS, strict=True):
        left.annotate(method, (share, figures[method]), (4, 4), textcoords="offset points")
    left.set_xscale("log")
    left.set(xlabel="trained parameters, % of the model", ylabel="perplexity, held-out headers")
    left.set_title("Learning C++")
    left.legend(fontsize="small")
    names = ["frozen", *METHODS, "QLoRA r=4", "control r=4"]
    right.barh(names[::-1], [figures[f"{n}, code"] for n in names[::-1]], color=BLUE)
    right.set(xlabel="perplexity, held-out Python code", title="Forgetting Python")
