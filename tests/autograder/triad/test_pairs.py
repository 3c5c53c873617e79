"""Corners of a card that no call of any test has both of are named."""

from dataclasses import replace

import msgspec
import pytest
import torch
from toytriad import SOLVED, toy

from autograder.triad.forked import RECORDED
from autograder.triad.pairs import possible_pairs, unmet_pairs, watch_pairs
from autograder.triad.run import solved_cells


def test_only_corners_of_one_call_meet():
    declared = {"f.x": ["bfloat16", "empty"], "f.k": ["== 1", ">= 9"]}
    namespace = {"f": lambda x, k: k}
    watch_pairs(namespace, ["f"], declared)
    namespace["f"](torch.zeros(0), 1)
    namespace["f"](torch.ones(2).bfloat16(), 10)
    assert namespace[RECORDED] == {
        (("f.k", "== 1"), ("f.x", "empty")),
        (("f.k", ">= 9"), ("f.x", "bfloat16")),
    }


@pytest.mark.parametrize(
    ("declared", "count"),
    [
        ({"f.x": ["float32", "bfloat16", "2-d"]}, 0),  # a tensor has one dtype
        ({"f.x": ["bfloat16", "strided", "empty", "huge"]}, 4),  # a view of nothing is none
        ({"f.x": ["float32", "None"], "f.y": ["None"]}, 2),
        ({"f.x": ["empty"], "g.x": ["huge"]}, 0),  # of two functions
        ({"f.x": ["empty"], "f": ["raises ValueError"]}, 0),
        ({"Pool.take.n": [">= 9"], "Pool.take.k": ["== 1"], "Pool.size": ["== 1"]}, 1),
    ],
)
def test_pairs_that_exclude_each_other_are_not_asked_for(declared, count):
    assert len(possible_pairs(declared)) == count


def test_pairs_that_a_suite_leaves_out(tmp_path):
    _, lab = toy(tmp_path)
    declared = {"scale.numbers": ("list", "item <= -1"), "scale.factor": ("<= 100", ">= 1e30")}
    ex1 = msgspec.structs.replace(lab.exercises["ex1"], domain=declared)
    lab = replace(lab, exercises={"ex1": ex1})
    found = dict(unmet_pairs(lab, solved_cells(lab, SOLVED), jobs=1))
    assert {pair for pair in found["ex1"]} == {
        (("scale.factor", ">= 1e30"), ("scale.numbers", word)) for word in declared["scale.numbers"]
    }
