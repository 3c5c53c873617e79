"""Trains ternary and float models of three sizes, for lab 15: a quarter of an hour of a core.

    python benchmarks/lab15_runs.py            what is missing in benchmarks/lab15_runs.json
    python benchmarks/lab15_runs.py --fresh    all of it, anew

STEPS steps of BATCH x CONTEXT tokens of the standard library's source and manual, the same samples
for float and ternary.  Float, and ternary with a scale for the matrix ("tensor") or, at the two
smaller widths, for each row ("channel"), start from the same weights.  The learning rate of the
matrices is searched for float and ternary at the smallest width, with a seed of its own, by factors
of two until both neighbours are worse.
Then the float models are rounded after training: the controls.

A run that is stopped goes on where it was (build/lab15).  `lab15_tables.py` reads the file.
"""

import json
import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import model_bits, quantizable_linears
from efflib.quantization.ternary import (
    least_error,
    ternary_bits,
    use_bit_linears,
    with_bit_linears,
)
from efflib.zoo.evaluation import held_out_segments, token_losses
from efflib.zoo.tokenizer import text_ids
from efflib.zoo.train import llama
from efflib.zoo.training import Recipe, Run, loss_function

FILE = Path(__file__).with_suffix(".json")
STATE = Path("build/lab15")
LAYERS, STEPS, BATCH, CONTEXT = 4, 600, 8, 128
SEEDS = {32: (0, 1, 2), 64: (0, 1, 2), 96: (0, 1, 2)}  # of each width
WIDTHS = tuple(SEEDS)
RATES = (0.0015, 0.003, 0.006, 0.012, 0.024, 0.048)
HELD_OUT, EVERY, SAVE = 16384, 25, 100
WAYS = ("float", "tensor", "channel")


@cache
def text() -> Tensor:
    return torch.cat([text_ids("code", False), text_ids("prose", False)])


def held_out(model: nn.Module) -> float:
    """Mean -ln p of held-out source, nats."""
    model.eval()
    loss = token_losses(model, held_out_segments("code", HELD_OUT), CONTEXT, CONTEXT)
    model.train()
    return loss.double().mean().item()


def trained(way: str, width: int, rate: float, seed: int) -> Run:
    """The run, finished; its log holds the mean loss of every EVERY steps."""
    recipe = Recipe(
        llama(width, LAYERS, 5 * width // 2),
        steps=STEPS,
        batch=BATCH,
        context=CONTEXT,
        matrix_lr=rate,
        seed=seed,
    )
    STATE.mkdir(parents=True, exist_ok=True)
    run = Run(recipe, text(), STATE / f"{way}-{width}-{rate}-{seed}.pt")
    if way != "float":
        use_bit_linears(run.model, way)
    loss, losses = loss_function(run.model, "cpu", bfloat16=False), []
    while run.step < STEPS:
        losses.append(run.update(loss))
        if run.step % EVERY == 0:
            run.log.append(sum(losses) / len(losses))
            losses = []
        if run.step % SAVE == 0:
            run.save()
    return run


def rounded(model: nn.Module) -> dict[str, float]:
    """Held-out losses of the float model rounded after training: the controls."""
    with_least = with_bit_linears(model, "channel")
    for layer in quantizable_linears(with_least).values():
        codes, scale = least_error(layer.weight.detach(), "channel")
        layer.weight.data = codes * scale
    for name, layer in quantizable_linears(with_least).items():
        plain = nn.Linear(layer.in_features, layer.out_features, bias=False)
        plain.weight = layer.weight
        with_least.set_submodule(name, plain)
    return {
        "ternary, tensor": held_out(with_bit_linears(model, "tensor")),
        "ternary, channel": held_out(with_bit_linears(model, "channel")),
        "least error, channel": held_out(with_least),
        "2 bits, channel": held_out(quantize_model(model, 2, "channel")[0]),
        "4 bits, channel": held_out(quantize_model(model, 4, "channel")[0]),
    }


def line(way: str, width: int, rate: float, seed: int) -> dict:
    run = trained(way, width, rate, seed)
    model = run.model
    inside = sum(layer.weight.numel() for layer in quantizable_linears(model).values())
    found = {
        "loss": held_out(model),
        "curve": [round(v, 4) for v in run.log],
        "linears": inside,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bits": model_bits(model) if way == "float" else ternary_bits(model, way),
    }
    if way == "float":
        found["rounded"] = rounded(model)
        found["bits of 4"] = model_bits(model, 4, "channel")
    return found


def main() -> None:
    torch.set_num_threads(1)
    done = {}
    if FILE.exists() and "--fresh" not in sys.argv[1:]:
        done = json.loads(FILE.read_text())

    def at(way: str, width: int, rate: float, seed: int) -> dict:
        key = f"{way} {width} {rate} {seed}"
        if key not in done:
            done[key] = line(way, width, rate, seed)
            FILE.write_text(json.dumps(done, indent=1) + "\n")
            print(key, round(done[key]["loss"], 4), flush=True)
        return done[key]

    def best(way: str) -> float:
        i = RATES.index(0.006)
        while True:
            near = [j for j in (i - 1, i, i + 1) if 0 <= j < len(RATES)]
            found = min(near, key=lambda j: at(way, WIDTHS[0], RATES[j], 100)["loss"])
            if found == i:
                return RATES[i]
            i = found

    rates = {way: best(way) for way in WAYS[:2]}
    rates["channel"] = rates["tensor"]
    for width, seeds in SEEDS.items():
        for seed in seeds:
            for way in WAYS[:2]:
                at(way, width, rates[way], seed)
    for width in WIDTHS[:2]:
        at("channel", width, rates["channel"], 0)


if __name__ == "__main__":
    main()
