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

from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor

from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.decoding.speculative import expected_tokens
from efflib.models import Llama
from efflib.plots.style import BLUE, GREY, ORANGE
from efflib.zoo.phenomena.story import Claim, Scale, windows

PROMPT = 64  # tokens of held-out code before the continuation, after the begin token
GAMMAS = range(1, 9)
MOST_NEW = 128  # tokens generated per prompt


@torch.no_grad()
def same_choice(target: Llama, draft: Llama, ids: Tensor, start: int) -> Tensor:
    """Whether both find the same token most likely at each position from `start` on. [n, T-start]

    The token at position t is predicted from ids[:, :t]; ids [n, T], start >= 1.
    """
    chosen = [m(ids[:, :-1]).argmax(-1)[:, start - 1 :] for m in (target, draft)]
    return chosen[0] == chosen[1]


def rounds(row: Sequence[bool], gamma: int) -> tuple[int, int]:
    """(passes of the target, proposals) of the greedy loop on a continuation (True: agreement)."""
    done = passes = proposed = 0
    while done < len(row):
        g = min(gamma, len(row) - done - 1)  # the pass itself adds one
        kept = [*row[done : done + g], False].index(False)
        done, passes, proposed = done + kept + 1, passes + 1, proposed + g
    return passes, proposed


def replay(same: Tensor, gamma: int) -> float:
    """Tokens per target pass of the greedy loop on continuations same [n, N] (True: agreement)."""
    return same.numel() / sum(rounds(row, gamma)[0] for row in same.tolist())


def shuffled(same: Sequence[Tensor], gamma: int, times: int = 400, seed: int = 0) -> list[float]:
    """`replay`, mean over same (each [n, N]), each row in another order: `times` values, sorted.

    CONTROL for runs: the rates and the lengths of all texts stay, only the order is luck.
    """
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(times):
        orders = [torch.rand(s.shape, generator=generator).argsort(1) for s in same]
        values.append(
            mean(replay(s.gather(1, o), gamma) for s, o in zip(same, orders, strict=True))
        )
    return sorted(values)


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
