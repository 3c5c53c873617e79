"""Before anything is imported: Triton kernels are interpreted in this process.

The models of transformers import triton, and a process that imported it for compiling cannot
interpret kernels any more.  No test compiles kernels in this process; those that compile start
another one without this variable, and tests/kernels/test_on_device.py one for a GPU.
"""

import os
import sys
from pathlib import Path

assert "triton" not in sys.modules, "a pytest plugin imported triton before tests/conftest.py"
if os.environ.get("EFFLIB_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

# what Triton's compiler says about a kernel lasts from run to run (efflib.kernel_lab)
os.environ.setdefault("EFFLIB_COMPILED", str(Path(__file__).parents[1] / "build" / "compiled"))

import by_night  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("night", deadline=None)  # no test depends on wall time
settings.register_profile("day", deadline=None, max_examples=25)
settings.load_profile("night" if os.environ.get("BY_NIGHT") else "day")
LEFT_OUT = pytest.StashKey[set[str]]()  # see by_night.left_out


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What a file has of one lab is a group, and what it has of none another.

    So the labs of a file are spread over the processes, and a fixture of a module is made once, or
    once for a lab.  (xdist 3.8 finds no marks of --dist loadgroup with pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByLab(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return by_night.group_of(nodeid)

    return ByLab(config, log)


def pytest_configure(config) -> None:
    """What is left out is found once, and told to the processes of xdist."""
    told = getattr(config, "workerinput", {}).get("left_out")
    config.stash[LEFT_OUT] = set(by_night.left_out() if told is None else told)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput["left_out"] = sorted(node.config.stash[LEFT_OUT])


def pytest_report_header(config):
    out = config.stash[LEFT_OUT]
    by_lab = sum(" " in name for name in out)
    return (
        f"by night: {len(out) - by_lab} files, and slow tests of {by_lab} labs in a file, on which "
        "nothing has changed since they passed (by_night.toml)"
    )


def pytest_collection_modifyitems(config, items) -> None:
    """Leaves out what nothing can have broken, unless it is asked for by name.  Groups with slow
    tests come first: a long one that starts last is waited for.
    """
    asked = {arg.partition("::")[0] for arg in config.args}
    out = {name for name in config.stash[LEFT_OUT] if name.partition(" ")[0] not in asked}
    slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
    gone = {i: None for i in items if by_night.is_left_out(i.nodeid, i.nodeid in slow, out)}
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]
    if hasattr(config, "workerinput"):
        long = set(map(by_night.group_of, slow))
        items.sort(key=lambda item: by_night.group_of(item.nodeid) not in long)
