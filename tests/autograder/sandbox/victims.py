"""A sandbox to attack."""

from types import SimpleNamespace

from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.remote import RemoteStudent

WITHHELD = ("efflib.quantization",)
BUDGET = SimpleNamespace(cell_seconds=60.0, notebook_seconds=120.0, call_seconds=60.0)


class Victim(RemoteStudent):
    """A sandbox without a notebook: `run` executes a cell in it and calls its `attack`."""

    def __init__(self, spec: SandboxSpec, cells=()) -> None:
        super().__init__(spec, list(cells), BUDGET)

    def cell(self, source: str, seconds: float = 60.0):
        return self._with_session(lambda session, _: session.run_cell(source, seconds), None)

    def run(self, source: str, *args, seconds: float = 60.0):
        assert self.cell(source).error is None
        return self.limited_to(seconds).attack(*args)
