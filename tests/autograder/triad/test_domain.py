"""What a suite tries is noted as it arrives, and a declared corner that nobody tries is named."""

from dataclasses import replace

import msgspec
import pytest
import torch
from torch import nn
from toytriad import SOLVED, toy

from autograder.triad.arrived import watch
from autograder.triad.domain import Domain, Tried, domains, untried
from autograder.triad.forked import RECORDED
from autograder.triad.run import solved_cells
from autograder.triad.summary import Summary, summarize
from autograder.triad.table import domain_markdown, domain_rows


def words_of(value):
    into = Summary()
    summarize(value, into)
    return set(into.words), into.ranges


def test_a_tensor_in_words_and_ranges():
    words, ranges = words_of(torch.tensor([[1e-7, -0.0], [0.5e-7, 0.0]]).T)
    assert words == {"float32", "2-d", "strided", "-0.0", "ties", "tiny", "fraction"}
    assert ranges["max"] == pytest.approx([1e-7, 1e-7]) and ranges["dim -1"] == [2, 2]
    words, ranges = words_of(torch.tensor([float("nan"), float("-inf"), -3e4]).bfloat16())
    assert words == {"bfloat16", "1-d", "nan", "-inf", "negative", "huge"}
    assert ranges["value"] == [-29952.0, -29952.0]
    assert words_of(torch.zeros(0, 3)) == (
        {"float32", "2-d", "empty"},
        {"numel": [0, 0], "dim 0": [0, 0], "dim -2": [0, 0], "dim 1": [3, 3], "dim -1": [3, 3]},
    )
    assert words_of(torch.zeros(1))[0] >= {"zeros", "one element", "size 1"}
    assert words_of(torch.tensor([True]))[0] >= {"bool", "True"}
    assert "requires grad" in words_of(nn.Parameter(torch.ones(2)))[0]


def test_plain_values_containers_and_modules():
    assert words_of(2.5) == ({"float", "fraction", "== 2.5"}, {"value": [2.5, 2.5]})
    assert words_of(7) == ({"int", "== 7"}, {"value": [7, 7]})
    assert words_of(None) == ({"None"}, {}) and words_of(True) == ({"True"}, {})
    assert words_of("left")[0] == {"== 'left'"}
    words, ranges = words_of([[3, -1], []])
    assert {"list", "item int", "item == -1"} <= words
    assert ranges["item"] == [-1, 3] and ranges["length"] == [2, 2]
    assert "length == 1" in words_of((3,))[0] and "length == 1" not in words
    assert words_of({5: 1.5})[1] == {"length": [1, 1], "key": [5, 5], "item": [1.5, 1.5]}
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).eval().bfloat16())
    assert words_of(model)[0] == {"Sequential", "mixed modes", "float32", "bfloat16"}
    assert words_of(print)[0] == {"function"}


def test_corners():
    tried = Tried({"bfloat16", "== 'left'"}, {"value": (2, 1e9), "max": (1e-8, 5.0)})
    assert all(map(tried.touches, ["bfloat16", "== 'left'", ">= 1e9", "<= 2", "max <= 1e-8"]))
    assert not any(map(tried.touches, ["float32", ">= 2e9", "<= 1", "max >= 6", "length >= 1"]))


NOTEBOOK = """
def inner(x):
    if x < 0:
        raise KeyError(x)
    return x

def outer(x):
    return inner(x + 1)

class Pool:
    def __init__(self, size):
        self.size = size
    def take(self, n):
        if n > self.size:
            raise ValueError("too many")
        self.size -= n
        return n
"""


def test_calls_from_outside_are_noted_with_errors_and_what_follows_them():
    namespace = {"__name__": "__main__"}
    exec(NOTEBOOK, namespace)
    watch(namespace, ["inner", "outer", "Pool"])
    assert namespace["outer"](1) == 2
    with pytest.raises(KeyError):
        namespace["inner"](-5)
    first, second = namespace["Pool"](3), namespace["Pool"](4)
    assert isinstance(first, namespace["Pool"]) and first.take(2) == 2
    with pytest.raises(ValueError):
        first.take(9)
    second.take(1)
    seen = {name: (set(words), ranges) for name, words, ranges in namespace[RECORDED]}
    assert seen["inner.x"] == ({"int", "== -5"}, {"value": [-5, -5]})  # not the 2 from outer
    assert seen["inner"][0] == {"raises KeyError", "raises LookupError"}
    assert seen["Pool.size"][1] == {"value": [3, 4]} and seen["Pool.take.n"][1] == {"value": [1, 9]}
    assert seen["Pool.take"][0] == {"raises ValueError"}
    assert first.take(1) == 1
    assert (
        "raises ValueError, then called"
        in dict((n, w) for n, w, _ in namespace[RECORDED])["Pool.take"]
    )


def declare(lab, **corners):
    """The toy lab, whose first exercise declares these corners of scale's arguments."""
    domain = {f"scale.{name}": tuple(words) for name, words in corners.items()}
    ex1 = msgspec.structs.replace(lab.exercises["ex1"], domain=domain)
    return replace(lab, exercises={"ex1": ex1})


@pytest.fixture(scope="module")
def toy_domain(tmp_path_factory):
    _, lab = toy(tmp_path_factory.mktemp("toy"))
    cells = solved_cells(lab, SOLVED)
    return lab, cells, {domain.exercise: domain for domain in domains(lab, cells, seeds=2, jobs=1)}


def test_a_suite_is_watched_publicly_and_hidden(toy_domain):
    lab, cells, found = toy_domain
    assert set(found) == {"ex1", "ex2"} and len(found["ex1"].seeds) == 2
    assert found["ex1"].tried("scale.numbers", "public").touches("list")
    assert found["ex1"].tried("scale.numbers", "hidden").touches("item <= -1")
    assert not found["ex1"].tried("clip.numbers", "public").words
    rows = domain_rows(found["ex1"])
    assert {"scale.factor", "scale.numbers"} <= {row[1] for row in rows}
    assert "scale.numbers" in domain_markdown(lab, list(found.values()))


def test_what_nobody_tries_declares_or_has_is_named(toy_domain):
    lab, cells, found = toy_domain
    tried = declare(lab, numbers=["list", "item <= -1"], factor=["<= 100"])
    assert untried(tried, cells, found["ex1"]) == []
    gaps = declare(lab, numbers=["item >= 1e30"], other=["int"])
    assert untried(gaps, cells, found["ex1"]) == [
        "ex1: scale.factor is not declared",
        "ex1: scale.numbers: no test tries 'item >= 1e30'",
        "ex1: there is no scale.other, which `domain` declares",
    ]


def test_a_corner_that_one_seed_leaves_out_is_a_gap(toy_domain):
    lab, cells, found = toy_domain
    seeds = [{"public": {"scale.numbers": Tried({word})}, "hidden": {}} for word in ("nan", "inf")]
    one = declare(lab, numbers=["nan"], factor=[])
    assert untried(one, cells, Domain("ex1", seeds)) == [
        "ex1: scale.numbers: no test tries 'nan' under seeds [1]"
    ]
