"""The command's part of training: workers that are handed the text, the log, the saved state."""

from argparse import Namespace

import pytest
import torch

from efflib.zoo import train
from efflib.zoo.tokenizer import VOCAB_SIZE
from efflib.zoo.training import Recipe, Run

RECIPE = Recipe(train.llama(width=32, layers=1, intermediate=32), steps=2, batch=2, context=64)
TEXT = torch.randint(1, VOCAB_SIZE, (2000,), generator=torch.Generator().manual_seed(0))


def test_two_workers_train_log_and_save_as_one_does(tmp_path):
    alone = Run(RECIPE, TEXT, tmp_path / "alone.pt")
    start = {name: weight.clone() for name, weight in alone.model.state_dict().items()}
    train.train(alone, compiled=False)
    options = dict(
        what="tiny", device="cpu", workers=2, threads=1, eager=True, float32=False, state=tmp_path
    )
    given = Namespace(recipe=RECIPE, **options)
    torch.multiprocessing.spawn(train.work, (given, TEXT), nprocs=2)
    shared = Run(RECIPE, TEXT, train.state_file(given))  # reads what was saved
    for run in (alone, shared):
        (entry,) = run.log
        assert (entry["step"], entry["tokens"]) == (2, 2 * 2 * 64)
        assert entry["code_perplexity"] == pytest.approx(VOCAB_SIZE, rel=0.1)  # knows nothing yet
        assert 1 / 64 < entry["sink"] < 1
    for name, weight in shared.model.state_dict().items():
        moved = (weight - start[name]).norm()
        apart = (weight - alone.model.state_dict()[name]).norm()
        # Other sums in bf16, enlarged by Muon where a gradient is small. Seen: at most 0.045.
        assert shared.step == 2 and 0 < moved and apart < 0.1 * moved, name
