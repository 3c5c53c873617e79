"""Speculative decoding: how many tokens a target pass yields, against the draft length.

`draft` proposes, `target` verifies, greedily, on prompts of held-out code. Reported:

- acceptance: the share of the target's own greedy continuation that the draft, given the same
  tokens before, also finds most likely. This is what the loop sees: it stands behind the formula
  (1 - a^(g+1)) / (1 - a), and the claim is made on it.
- agreement: the same share on the held-out text itself, where tokens are as people wrote them.
  It is lower; greedy text repeats itself and is easier to guess.
- tokens per target pass for g = 1 .. 8, beside the formula. A greedy round accepts the draft's
  choices up to the first that differs from the target's continuation, so the counts of the loop
  follow from where the two agree, for every g at once (`replay`; the test runs the loop itself
  and finds the same counts). The formula takes acceptances as independent and texts as endless;
  `shuffled` shows which part of the distance is due to the order of the agreements.

CONTROL: a draft of the same shape with random weights. Its acceptance is about 0 and every pass
yields one token: the gain comes from what the draft knows, not from the procedure.
"""

import torch

from efflib import zoo
from efflib.decoding.replay import replay, same_choice
from efflib.decoding.sampling import generate
from efflib.decoding.speculative import expected_tokens
from efflib.models import Llama
from efflib.plots.style import BLUE, GREY, ORANGE
from efflib.zoo.phenomena.story import Claim, Scale, windows

PROMPT = 64  # tokens of held-out code before the continuation, after the begin token
GAMMAS = range(1, 9)
MOST_NEW = 128  # tokens generated per prompt


def measure(scale: Scale, seed: int) -> dict[str, float]:
    target, draft = zoo.load("target"), zoo.load("draft")
    torch.manual_seed(seed)
    random_draft = Llama(draft.config).eval()
    text = windows("code", True, scale, seed)
    own = generate(target, text[:, : 1 + PROMPT], min(scale.steps, MOST_NEW))
    same = same_choice(target, draft, own, 1 + PROMPT)  # [n, new]
    random_same = same_choice(target, random_draft, own, 1 + PROMPT)
    figures = {
        "acceptance": same.float().mean().item(),
        "random acceptance": random_same.float().mean().item(),
        "agreement": same_choice(target, draft, text, 1).float().mean().item(),
    }
    for gamma in GAMMAS:
        figures[f"tokens g={gamma}"] = replay(same, gamma)
        figures[f"formula g={gamma}"] = expected_tokens(figures["acceptance"], gamma)
        figures[f"random tokens g={gamma}"] = replay(random_same, gamma)
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    return [
        Claim("share of the target's greedy choices the draft guesses", f["acceptance"], 0.6),
        Claim("... that a random draft does not", 1 - f["random acceptance"], 0.95),
        Claim("tokens per target pass at g = 4", f["tokens g=4"], 2.0),
        Claim(
            "the same over those with a random draft",
            f["tokens g=4"] / f["random tokens g=4"],
            2.0,
        ),
        Claim(
            "formula and measurement at g = 4, smaller over larger",
            min(f["tokens g=4"] / f["formula g=4"], f["formula g=4"] / f["tokens g=4"]),
            0.85,
        ),
    ]


def plot(figures: dict[str, float], axes: list) -> None:
    rates, tokens = axes
    names = ["acceptance", "agreement", "random acceptance"]
    labels = ["target's own text", "held-out text", "random draft,\ntarget's own text"]
    rates.bar(labels, [figures[n] for n in names], color=[BLUE, ORANGE, GREY])
    rates.set(ylabel="share of equal choices", ylim=(0, 1))
    for key, label, style in (
        ("tokens", "draft, measured", dict(color=BLUE, marker="o")),
        ("formula", "formula at its acceptance", dict(color=BLUE, linestyle="--")),
        ("random tokens", "random draft", dict(color=GREY, marker="s")),
    ):
        tokens.plot(GAMMAS, [figures[f"{key} g={g}"] for g in GAMMAS], label=label, **style)
    tokens.set(xlabel="proposed per pass, g", ylabel="tokens per target pass")
    tokens.legend()
