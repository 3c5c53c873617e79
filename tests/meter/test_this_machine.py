"""What is measured and on what: shapes, medians, dtypes.  No test looks at how long it took."""

import pytest
import torch

from efflib.meter import this_machine as t
from efflib.models.cost import shapes
from efflib.models.llama import Llama, LlamaConfig

TINY = LlamaConfig(50, 24, 40, 2, 4, 2, 6)


def test_the_median_of_the_runs_behind_the_first(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])  # 3, 1 and 2 seconds
    monkeypatch.setattr(t, "CLOCK", lambda: next(clock))
    runs = []
    assert t.seconds_of(lambda: runs.append(1), repeats=3) == 2.0
    assert len(runs) == 4


def test_rates_are_work_over_time(monkeypatch):
    monkeypatch.setattr(t, "seconds_of", lambda work, repeats: 0.5)
    assert t.product_rate(10) == 2 * 10**3 / 0.5
    assert t.copy_rate(1000) == 2 * 1000 / 0.5


def test_ceilings_are_the_largest_and_say_by_what(monkeypatch):
    monkeypatch.setattr(t, "product_rate", lambda n, dtype, repeats: {8: 3e9, 16: 2e9}[n])
    monkeypatch.setattr(t, "copy_rate", lambda size, repeats: {2**20: 1e9, 2**21: 1.5e9}[size])
    found = t.ceilings(torch.bfloat16, (8, 16), (2**20, 2**21))
    assert (found.peak, found.product) == (3e9, 8)
    assert (found.bandwidth, found.copy) == (1.5e9, 2**21)
    assert found.ridge == 2.0 and found.threads == torch.get_num_threads()
    said = str(found)
    assert "3.0 GFLOP/s (8 x 8 product, bfloat16)" in said and "1.5 GB/s (copy of 2 MiB)" in said


def test_ceilings_of_a_real_run_are_positive():
    found = t.ceilings(products=(16,), copies=(4096,), repeats=1)
    assert found.peak > 0 and found.bandwidth > 0 and found.dtype == torch.float32


def test_the_large_model_has_150_to_250_million_parameters_and_no_memory_yet():
    assert 150e6 < shapes(t.LARGE).parameters < 250e6
    with torch.device("meta"):
        assert shapes(t.LARGE).parameters == sum(p.numel() for p in Llama(t.LARGE).parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_random_model_is_a_llama_with_finite_logits(dtype):
    model, again = (t.random_model(TINY, dtype, seed=3) for _ in range(2))
    assert all(p.dtype == dtype for p in model.parameters()) and not model.training
    with torch.no_grad():
        logits = model(torch.arange(12).view(2, 6))
    assert logits.shape == (2, 6, 50) and logits.isfinite().all() and logits.std() > 0
    for name, p in model.state_dict().items():
        assert torch.equal(p, again.state_dict()[name])
    assert not torch.equal(model.lm_head.weight, t.random_model(TINY, dtype, seed=4).lm_head.weight)


def test_a_pass_reads_so_many_tokens_behind_so_many(monkeypatch):
    model, seen = t.random_model(TINY), []
    plain = t.last_logits

    def watched(model, ids, cache):
        before = cache.length
        out = plain(model, ids, cache)
        seen.append((tuple(ids.shape), before, cache.length, tuple(out.shape)))
        return out

    monkeypatch.setattr(t, "last_logits", watched)
    assert t.pass_seconds(model, new=3, cached=5, batch=2, repeats=2) > 0
    assert seen == [((2, 3), 5, 8, (2, 50))] * 3
    seen.clear()
    assert t.pass_seconds(model, new=4, repeats=1) > 0
    assert seen == [((1, 4), 0, 4, (1, 50))] * 2


def test_a_pass_gives_the_last_tokens_logits():
    model, ids = t.random_model(TINY), torch.arange(10).view(2, 5)
    with torch.no_grad():
        found = t.last_logits(model, ids, t.filled_cache(model, 2, 0))
        assert torch.allclose(found, model(ids)[:, -1], atol=1e-6)


@pytest.mark.parametrize("change", [{"new": 0}, {"batch": 0}, {"cached": -1}])
def test_bad_passes_are_named(change):
    name, value = next(iter(change.items()))
    with pytest.raises(ValueError, match=f"{name}={value}"):
        t.pass_seconds(t.random_model(TINY), **({"new": 1} | change))


def test_room_is_said_where_the_system_knows(monkeypatch):
    monkeypatch.setattr(t, "free_memory", lambda: 3 * 10**9)
    assert not t.has_room() and t.has_room(2 * 10**9)
    monkeypatch.setattr(t, "free_memory", lambda: None)
    assert t.has_room()
    monkeypatch.undo()
    assert (free := t.free_memory()) is None or free > 0
