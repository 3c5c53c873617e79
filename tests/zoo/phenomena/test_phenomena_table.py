"""The table: claims are judged by the worst seed, one that fails is printed as such."""

import pytest
import torch

from efflib.zoo.phenomena import STORIES, __main__, module, table
from efflib.zoo.phenomena.story import QUICK, Claim, Mean, losses, perplexity, windows
from efflib.zoo.tokenizer import BEGIN_ID

SECTIONS = __main__.SECTIONS


class Story:
    """A toy story whose figures are the seed, of two models.

    The control is nothing.
    """

    MODELS = {"hot": "with |X|", "plain": "as trained"}

    @staticmethod
    def measure(scale, seed):
        return {"hot a": float(seed), "plain a": 1.0, "hot b": 0.25, "other": float(seed)}

    @staticmethod
    def claims(figures):
        return [Claim("at least |one|", figures["other"], 1.0)]


@pytest.mark.parametrize("name", STORIES)
def test_a_story_says_what_its_control_is(name):
    story = module(name)
    assert "control" in story.__doc__.lower()
    assert all(callable(getattr(story, f)) for f in ("measure", "claims", "plot"))


def test_the_worst_seed_is_judged(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "module", lambda name: Story)
    measured = __main__.measure("toy", QUICK, seeds=3)
    (judged,) = __main__.judged("toy", measured)
    assert judged.claim.value == 0.0 and not judged.claim.holds and judged.mean == 1.0
    __main__.show(Mean.of(measured), [judged])
    assert "NO  at least |one|: 1.000, worst 0.000, wanted 1.000" in capsys.readouterr().out


def test_a_section_has_a_column_for_every_model(monkeypatch):
    monkeypatch.setattr(table, "module", lambda name: Story)
    runs = [Story.measure(QUICK, seed) for seed in range(3)]
    claims = [table.Judged(Story.claims(runs[0])[0], 1.0)]
    text = table.section("toy", Mean.of(runs), claims, 3)
    assert "| at least \\|one\\| | 1.000 | 0.000 | 1.000 | **no** |" in text
    assert "| | with \\|X\\| | as trained |" in text
    assert "| a | 1 (0 to 2) | 1 |" in text and "| b | 0.25 |  |" in text
    assert "other 1 (0 to 2)" in text and "toy.svg" in text


def test_the_mean_knows_its_spread():
    mean = Mean([1.0, 3.0, 2.0])
    assert (mean, mean.low, mean.high) == (2.0, 1.0, 3.0)
    assert Mean.of([{"a": 1.0}, {"a": 5.0}])["a"].high == 5.0


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


@pytest.mark.parametrize("name", STORIES)
def test_the_chapters_table_is_of_the_shipped_target(name):
    assert f"Measured on `target` {table.target_hash()}." in (SECTIONS / f"{name}.md").read_text()


@pytest.mark.parametrize("name", STORIES)
def test_no_claim_of_the_chapters_table_fails(name):
    assert "**no**" not in (SECTIONS / f"{name}.md").read_text()
