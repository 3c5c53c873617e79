"""The table: claims are judged by the worst seed, one that fails is printed as such."""

import pytest
import torch

from efflib.zoo.phenomena import STORIES, __main__, module
from efflib.zoo.phenomena.story import QUICK, Claim, losses, perplexity, windows
from efflib.zoo.tokenizer import BEGIN_ID


class Story:
    """A toy story whose figure is the seed."""

    @staticmethod
    def measure(scale, seed):
        return {"figure": float(seed)}

    @staticmethod
    def claims(figures):
        return [Claim("at least one", figures["figure"], 1.0)]


@pytest.mark.parametrize("name", STORIES)
def test_a_story_says_what_its_control_is(name):
    story = module(name)
    assert "control" in story.__doc__.lower()
    assert all(callable(getattr(story, f)) for f in ("measure", "claims", "plot"))


def test_the_worst_seed_is_judged(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "module", lambda name: Story)
    measured = __main__.measure("toy", QUICK, seeds=3)
    (claim,) = __main__.worst("toy", measured)
    assert claim.value == 0.0 and not claim.holds
    assert "| at least one | 0.000 | 1.000 | **no** |" in __main__.rows("toy", measured[0], [claim])
    __main__.show(measured[0], [claim])
    assert "NO  at least one" in capsys.readouterr().out


def test_an_unknown_story_is_named(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["phenomena", "nonsense"])
    with pytest.raises(SystemExit):
        __main__.main()
    assert "no story 'nonsense'; there are quantization" in capsys.readouterr().err


def test_every_seed_reads_other_windows():
    first, second = (windows("code", True, QUICK, seed) for seed in (0, 1))
    assert first.shape == (QUICK.windows, 1 + QUICK.length)
    assert (first[:, 0] == BEGIN_ID).all() and not torch.equal(first, second)
    assert windows("code", False, QUICK, 0).shape[0] == QUICK.calibration


def test_perplexity_of_a_model_that_knows_nothing_is_the_vocabulary():
    class Uniform(torch.nn.Module):
        def forward(self, ids):
            return torch.zeros(*ids.shape, 50)

    ids = torch.randint(0, 50, (3, 9))
    assert losses(Uniform(), ids, batch=2).shape == (3, 8)
    assert perplexity(Uniform(), ids) == pytest.approx(50)
