"""A layer in parts against PyTorch's own tensor parallel, in two real processes over gloo."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from efflib.parallel.processes import Processes
from efflib.parallel.tensor import column_part, parallel_mlp, row_part

pytestmark = pytest.mark.slow


class Gated(nn.Module):
    """A Llama's MLP with biases."""

    def __init__(self, d, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(d, inner), nn.Linear(d, inner)
        self.down = nn.Linear(inner, d)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def by_dtensor(x, state, comm):
    """All of the MLP by ColwiseParallel and RowwiseParallel, in this rank's process group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = Gated(x.shape[-1], len(state["gate.bias"]))
    model.load_state_dict(state)
    plan = {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (comm.size,)), plan)
    return model(x).clone()


def test_column_and_row_parallel_are_dtensors(monkeypatch):
    for of_this_file in (by_dtensor, Gated):
        monkeypatch.setattr(of_this_file, "__module__", "__main__")
    torch.manual_seed(0)
    model, x = Gated(12, 20), torch.randn(5, 12)
    state = {name: p.detach() for name, p in model.state_dict().items()}

    def column(name, rank):
        return column_part(state[f"{name}.weight"], state[f"{name}.bias"], rank, 2)

    args = []
    for r in range(2):
        down = row_part(state["down.weight"], r, 2), state["down.bias"]
        args.append((x, column("gate", r), column("up", r), down))
    with Processes(2) as world:
        theirs = world.run(by_dtensor, [(x, state)] * 2).values
        ours = world.run(parallel_mlp, args).values
    with torch.no_grad():
        right = model(x)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)  # sums of 32 terms near 1
        torch.testing.assert_close(one, right, atol=1e-6, rtol=1e-5)
