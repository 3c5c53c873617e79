"""Texts with a name far back."""

import torch

from efflib import zoo
from efflib.zoo import recall


def test_the_name_comes_twice_and_in_the_control_once():
    ids, blank = recall.name_texts(5, gap=40, seed=3)
    assert ids.shape == blank.shape == (5, ids.shape[1]) and (ids[:, 0] == zoo.BEGIN_ID).all()
    known = set(recall.words())
    for row, other in zip(ids, blank, strict=True):
        name = row[-5:]
        starts = [i for i in range(len(row) - 5) if torch.equal(row[i : i + 5], name)]
        assert len(starts) == 1 and starts[0] < 4
        assert not any(torch.equal(other[i : i + 5], name) for i in range(len(other) - 5))
        assert torch.equal(row[starts[0] + 5 :], other[starts[0] + 5 :])
        assert {int(row[i]) for i in recall.WORDS} <= known


def test_seeds_and_gaps():
    a, b = (recall.name_texts(3, gap=10, seed=s)[0] for s in (0, 1))
    assert not torch.equal(a, b)
    assert recall.name_texts(3, gap=30, seed=0)[0].shape[1] == a.shape[1] + 20
    assert torch.equal(recall.name_texts(3, gap=10, seed=0)[0], a)
