"""A model of transformers gone through block by block: more families, and the zoo by all ways."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))
from test_any_model import WHOLE, loss, texts, written  # noqa: E402

from efflib import zoo
from efflib.models.checkpoint import save_pretrained
from efflib.models.groups import with_linears
from efflib.models.streamed import StreamedModel
from efflib.quantization.awq_model import awq
from efflib.quantization.gptq import gptq_model
from efflib.sparsity.wanda import prune_wanda
from efflib.zoo.phenomena.any_model import measure
from efflib.zoo.phenomena.ways import by_awq, by_gptq, by_wanda, ways

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize(
    "case, story",
    [
        ("llama tied, biases", "awq"),
        ("gemma2", "awq"),
        ("gemma3_text", "gptq"),
        ("qwen2", "gptq"),
        ("qwen3", "pruning"),
        ("opt", "quantization"),
        ("mistral", "quantization"),
        ("gpt2", "awq"),
        ("gpt2", "pruning"),
        ("mixtral", "awq"),
        ("mixtral", "pruning"),
    ],
)
def test_every_family_block_by_block(case, story, tmp_path):
    model = with_linears(written(case, tmp_path))
    calibration, held_out = texts()
    found = measure(StreamedModel(tmp_path, torch.float64), ways(story, 16), calibration, held_out)
    assert found.pop("float") == pytest.approx(loss(model, held_out), rel=1e-6)
    for name, value in found.items():
        assert value == pytest.approx(loss(WHOLE[name](model, calibration), held_out), rel=1e-4)


def test_the_zoo_block_by_block(tmp_path):
    """Written by us, opened by transformers, in float32.  Weights that AWQ has clipped lie on ties
    of rounding, so a last digit can move some codes: there the added loss agrees to a tenth."""
    ours = zoo.load("draft")
    save_pretrained(ours, tmp_path)
    calibration = zoo.calibration("code", n=4, length=64)
    held_out = zoo.calibration("code", n=6, length=65)[4:]
    told = {"AWQ": by_awq(4, 32), "GPTQ": by_gptq(4, 32), "Wanda": by_wanda(0.5)}
    found = measure(StreamedModel(tmp_path, torch.float32), told, calibration, held_out)
    exact = loss(ours, held_out)
    assert found["float"] == pytest.approx(exact, rel=1e-5)
    gptq = gptq_model(ours, calibration, 4, 32)[0]
    assert found["GPTQ"] == pytest.approx(loss(gptq, held_out), rel=1e-4)
    assert found["Wanda"] == pytest.approx(
        loss(prune_wanda(ours, calibration, 0.5), held_out), rel=1e-4
    )
    added = loss(awq(ours, calibration, 4, 32), held_out) - exact
    assert found["AWQ"] - exact == pytest.approx(added, rel=0.1)
