"""Controls of measured times: they run what they say, and put threads back.  No time is tested."""

import pytest
import torch

from efflib.meter import controls
from efflib.meter.this_machine import LARGE, random_model


@pytest.fixture(scope="module")
def empty():
    return random_model(controls.EMPTY)


def test_the_empty_model_has_the_layers_and_hardly_any_weights(empty):
    assert controls.EMPTY.num_hidden_layers == LARGE.num_hidden_layers
    held = sum(p.numel() for p in empty.parameters())
    assert held < LARGE.hidden_size * LARGE.intermediate_size


def test_matrices_alone_runs_every_linear_with_the_batch(empty):
    shapes = []
    hooks = [
        m.register_forward_hook(lambda _, inputs, out: shapes.append(tuple(out.shape)))
        for m in empty.modules()
        if isinstance(m, torch.nn.Linear)
    ]
    assert controls.matrices_alone(empty, 3, repeats=1) > 0
    assert len(shapes) == 2 * len(hooks) and all(shape[0] == 3 for shape in shapes)
    for hook in hooks:
        hook.remove()


def test_one_pass_runs_once(empty):
    seen = []
    hook = empty.lm_head.register_forward_hook(lambda *_: seen.append(1))
    assert controls.once(empty) > 0 and seen == [1]
    hook.remove()


def test_threads_are_put_back_also_after_an_error():
    before = torch.get_num_threads()
    assert controls.with_threads(1, torch.get_num_threads) == 1

    def fails():
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        controls.with_threads(1, fails)
    assert torch.get_num_threads() == before


def test_what_is_refused(empty):
    with pytest.raises(ValueError):
        controls.matrices_alone(empty, 0)
    with pytest.raises(ValueError):
        controls.with_threads(0, list)
