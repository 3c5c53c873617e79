"""Sandboxes that tests share where one test cannot disturb the next.

Each file gets its own: what one imports or leaves behind must not meet the tests of another,
which run in any order when pytest-xdist deals the files out.  And each comes in both kinds, cold
and warm, which promise the same.
"""

import textwrap

import pytest
from victims import WITHHELD, Victim

from autograder.sandbox import warm
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.session import Session


@pytest.fixture(scope="session")
def can_be_warm():
    """Why no sandbox here can be warm, or an empty string."""
    with Session(SandboxSpec()) as session:
        session.run_cell("x = 1", 60)
    return f"no warm sandboxes here: {warm.reason['reason']}" if warm.reason else ""


@pytest.fixture(scope="module", params=["cold", "warm"])
def kind(request, can_be_warm):
    if request.param == "warm" and can_be_warm:
        pytest.skip(can_be_warm)
    return {"warm": request.param == "warm"}


@pytest.fixture(scope="module")
def victim(kind):
    """One sandbox for all tests of a file; who kills it gets a new one at the next call."""
    yield from attacked(SandboxSpec(withhold=WITHHELD, **kind))


@pytest.fixture(scope="module")
def small(kind):
    """A sandbox with little memory and few processes, for bombs."""
    yield from attacked(SandboxSpec(memory_mb=640, processes=40, **kind))


@pytest.fixture(scope="module")
def fragile(kind):
    """A sandbox whose interpreter tests damage; what it defines is there again after its death."""
    yield from attacked(SandboxSpec(**kind), ["def attack(): return 8"])


def attacked(spec: SandboxSpec, cells=()):
    student = Victim(spec, cells)
    assert student.cell("x = 1").error is None
    assert isinstance(student._session._process, warm.Child) is spec.warm
    yield student
    student.close()


@pytest.fixture
def sessions(can_be_warm):
    """Makes sandboxes that one zygote forked: `alice = sessions(cell)`."""
    if can_be_warm:
        pytest.skip(can_be_warm)
    made = []

    def make(cell: str = "", **options) -> Session:
        made.append(Session(SandboxSpec(**options)))
        report = made[-1].run_cell(textwrap.dedent(cell), 60)
        assert report.error is None, report.error
        return made[-1]

    yield make
    for session in made:
        session.close()
