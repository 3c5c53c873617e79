"""Trains every way of lab 16 on its three tasks, and keeps the scores: about ten minutes of a core.

    python benchmarks/lab16_runs.py            what is missing in benchmarks/lab16_runs.json
    python benchmarks/lab16_runs.py --fresh    all of it, anew

STEPS steps on the zoo's `draft`, SEEDS seeds: of the training text and of what starts at random.
The learning rate is searched for each way, size and task, on text of its own ("sweep", seed 100):
from a first guess on, by factors of about three, until both neighbours are worse.
A run that is stopped goes on where it was.  `lab16_tables.py` reads the file.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from efflib import zoo
from efflib.finetuning.adapters import add_adapters
from efflib.finetuning.biases import add_biases, add_random
from efflib.finetuning.ia3 import add_ia3
from efflib.finetuning.lora import add_lora, trainable_parameters
from efflib.finetuning.prefixes import PrefixModel, prefix_of
from efflib.finetuning.prompts import PromptModel, prompt_of_words
from efflib.finetuning.tasks import BATCH, TASKS, examples, score
from efflib.finetuning.training import finetune

FILE = Path(__file__).with_suffix(".json")
STEPS, SEEDS, HELD_OUT, MODEL = 30, (0, 1, 2), 256, "draft"
GRID = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0]


def fresh() -> nn.Module:
    return zoo.load(MODEL)


def lora(size: int, seed: int) -> nn.Module:
    return add_lora(fresh(), size, 2 * size, ("o_proj", "down_proj"), seed=seed)


def lora_all(size: int, seed: int) -> nn.Module:
    return add_lora(fresh(), size, 2 * size, ("layers",), seed=seed)


def adapter(size: int, seed: int) -> nn.Module:
    return add_adapters(fresh(), size, seed=seed)


def prompt(size: int, seed: int) -> nn.Module:
    return PromptModel(fresh(), prompt_of_words(fresh(), size, seed))


def prefix(size: int, seed: int) -> nn.Module:
    return PrefixModel(fresh(), prefix_of(fresh(), prompt_of_words(fresh(), size, seed)))


def bitfit(size: int, seed: int) -> nn.Module:
    return add_biases(fresh())


def factors(size: int, seed: int) -> nn.Module:
    return add_ia3(fresh())


def gains(size: int, seed: int) -> nn.Module:
    """The gains of all norms: few, and in arrays that the model has."""
    model = fresh().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    return model


def random_weights(size: int, seed: int) -> nn.Module:
    return add_random(fresh(), size, seed=seed)


def last_block(size: int, seed: int) -> nn.Module:
    return add_random(fresh(), size, ("layers.1",), seed=seed)


def everything(size: int, seed: int) -> nn.Module:
    return fresh().requires_grad_(True)


# way: (how it is made, sizes, first guess of the rate)
WAYS: dict[str, tuple[Callable, tuple[int, ...], float]] = {
    "prompt": (prompt, (4, 20, 80), 0.1),
    "prefix": (prefix, (1, 5, 20), 0.1),
    "adapter": (adapter, (1, 2, 8, 32), 3e-2),
    "BitFit": (bitfit, (0,), 3e-2),
    "(IA)3": (factors, (0,), 0.1),
    "norm gains": (gains, (0,), 0.1),
    "LoRA": (lora, (1, 2, 8, 32), 3e-2),
    "LoRA, all seven": (lora_all, (1, 8), 1e-2),
    "random weights": (random_weights, (512, 2560, 10240, 40960), 1e-2),
    "random, last block": (last_block, (2560,), 1e-2),
    "all weights": (everything, (0,), 1e-3),
}
# about as many numbers: 2560 to 2816; a bias in every linear has 2560
EQUAL = [
    ("prompt", 20),
    ("prefix", 5),
    ("adapter", 2),
    ("BitFit", 0),
    ("LoRA", 2),
    ("random weights", 2560),
    ("random, last block", 2560),
    ("all weights", 0),
]


# is it a race?  these again with four times the steps, at the rates found
LONGER = [("prompt", 20), ("LoRA", 2), ("random weights", 2560)]
TIMES = 4


def trained(
    way: str, size: int, task: str, rate: float, seed: int, steps: int = STEPS
) -> nn.Module:
    drawn = examples(task, "training", steps * BATCH[task], seed)
    model = WAYS[way][0](size, seed)
    parts = drawn.ids.split(BATCH[task]), drawn.scored.split(BATCH[task])
    return finetune(model, parts[0], rate, seed, parts[1])[0]


def searched(way: str, size: int, task: str) -> dict[str, float]:
    """{rate: loss on the sweep's text}, around the best."""
    sweep, losses = examples(task, "sweep", HELD_OUT, 100), {}

    def at(i: int) -> float:
        if GRID[i] not in losses:
            losses[GRID[i]] = score(trained(way, size, task, GRID[i], 100), sweep).loss
        return losses[GRID[i]]

    i = GRID.index(WAYS[way][2])
    while True:
        near = [j for j in (i - 1, i, i + 1) if 0 <= j < len(GRID)]
        best = min(near, key=at)
        if best == i:
            return {str(rate): loss for rate, loss in sorted(losses.items())}
        i = best


def line(way: str, size: int, task: str) -> dict:
    """The search, and for each seed loss and share of right tokens on held-out text."""
    search = searched(way, size, task)
    rate = float(min(search, key=search.get))
    held = examples(task, "held out", HELD_OUT, 0)
    scores = [score(trained(way, size, task, rate, seed), held) for seed in SEEDS]
    return {
        "trained": trainable_parameters(WAYS[way][0](size, 0)),
        "rate": rate,
        "search": search,
        "losses": [s.loss for s in scores],
        "right": [s.right for s in scores],
    }


def longer(way: str, size: int, task: str, rate: float) -> dict:
    """Losses and shares after TIMES as many steps."""
    held = examples(task, "held out", HELD_OUT, 0)
    made = [trained(way, size, task, rate, seed, TIMES * STEPS) for seed in SEEDS]
    scores = [score(m, held) for m in made]
    return {"losses": [s.loss for s in scores], "right": [s.right for s in scores]}


def main() -> None:
    torch.set_num_threads(1)
    done = {}
    if FILE.exists() and "--fresh" not in sys.argv[1:]:
        done = json.loads(FILE.read_text())
    for task in TASKS:
        if f"frozen 0 {task}" not in done:
            seen = score(fresh(), examples(task, "held out", HELD_OUT, 0))
            done[f"frozen 0 {task}"] = {"trained": 0, "losses": [seen.loss], "right": [seen.right]}
    every = [(way, size) for way, (_, sizes, _) in WAYS.items() for size in sizes]
    for way, size in sorted(every, key=lambda pair: pair not in EQUAL):
        for task in TASKS:
            if (key := f"{way} {size} {task}") in done:
                continue
            done[key] = line(way, size, task)
            FILE.write_text(json.dumps(done, indent=1) + "\n")
            print(key, done[key]["rate"], [round(v, 3) for v in done[key]["losses"]], flush=True)
    for way, size in LONGER:
        for task in TASKS[1:]:
            if (key := f"{way} {size} {task} longer") not in done:
                rate = done[f"{way} {size} {task}"]["rate"]
                done[key] = longer(way, size, task, rate)
                FILE.write_text(json.dumps(done, indent=1) + "\n")
                print(key, [round(v, 3) for v in done[key]["losses"]], flush=True)


if __name__ == "__main__":
    main()
