"""A sink trained live: one head on the bigram-backcopy task (see efflib/zoo/backcopy.py).

The head is needed after trigger tokens only. Everywhere else its attention moves to the begin
token while training goes on; then that token is evicted from a cache of SIZE tokens, and the loss
of the other tokens rises above the best possible one.

CONTROL: another early token kept instead of the begin token, in a cache of the same size.
"""

import torch

from efflib.attention.maps import begin_share
from efflib.attention.streaming import StreamingCache, stream_logits
from efflib.plots.style import BLUE, GREY, ORANGE
from efflib.zoo.backcopy import excess_loss, make_task, one_head_model, sample, train
from efflib.zoo.phenomena.story import Claim, Scale

LENGTH, SIZE = 24, 8  # of a text, of a cache
FIRST = 12  # queries from here on, which a cache of SIZE lets see no early token
STEPS_PER = 6  # training steps for every step of the scale
POINTS = 6  # of the curve


def measure(scale: Scale, seed: int) -> dict[str, float]:
    task, model = make_task(seed=seed), one_head_model(seed=seed)
    ids = sample(task, 8 * scale.windows, LENGTH, torch.Generator().manual_seed(seed + 1000))
    triggered = task.is_trigger[ids[:, :-1]][:, FIRST:]
    read, figures = ids[:, :-1], {}
    steps = min(600, STEPS_PER * scale.steps)
    for step, _ in train(model, task, steps, length=LENGTH, seed=seed):
        if step == 1 or step % (steps // POINTS) == 0:
            share = begin_share(model, read)[:, FIRST:]
            figures[f"share, step {step}"] = share[~triggered].mean().item()
    figures["dormant share"] = share[~triggered].mean().item()
    figures["share after triggers"] = share[triggered].mean().item()
    kept = {"window": (), "sink": (0,), "other token": (1 + seed % 3,)}
    for name, pinned in kept.items():
        logits = stream_logits(model, read, StreamingCache(SIZE, pinned, model.config.rope_theta))
        figures[f"excess, {name}"] = excess_loss(task, logits, ids)[:, FIRST:][~triggered].mean()
    with torch.no_grad():
        figures["excess, dense"] = excess_loss(task, model(read), ids)[:, FIRST:][~triggered].mean()
    return {key: float(value) for key, value in figures.items()}


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    return [
        Claim("attention to the begin token where the head is not needed", f["dormant share"], 0.7),
        Claim("... less that after triggers", f["dormant share"] - f["share after triggers"], 0.5),
        Claim("excess loss, window / sink", f["excess, window"] / f["excess, sink"], 1.3),
        Claim(
            "excess loss, another token kept / sink",
            f["excess, other token"] / f["excess, sink"],
            1.3,
        ),
    ]


def plot(figures: dict[str, float], axes: list) -> None:
    curve, bars = axes
    points = {int(k.split()[-1]): v for k, v in figures.items() if k.startswith("share, step")}
    curve.plot(points.keys(), points.values(), marker="o", color=BLUE)
    curve.set(xlabel="training step", ylabel="attention the begin token gets", ylim=(0, 1))
    names = ["dense", "sink", "window", "other token"]
    values = [figures[f"excess, {name}"] for name in names]
    bars.bar(names, values, color=[GREY, BLUE, ORANGE, ORANGE])
    bars.set(ylabel="loss above the best possible, nats")
