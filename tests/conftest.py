"""Before anything is imported: Triton kernels are interpreted in this process.

The models of transformers import triton, and a process that imported it for compiling cannot
interpret kernels any more.  No test compiles kernels in this process; those that compile start
another one without this variable, and tests/kernels/test_on_device.py one for a GPU.
"""

import os
import re
import sys

assert "triton" not in sys.modules, "a pytest plugin imported triton before tests/conftest.py"
if os.environ.get("EFFLIB_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

import by_night  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("efflib", deadline=None)  # no test depends on wall time
settings.load_profile("efflib")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What a file has of one lab is a group, and what it has of none another.

    So the labs of a file are spread over the processes, and a fixture of a module is made once, or
    once for a lab.  (xdist 3.8 finds no marks of --dist loadgroup with pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByLab(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByLab(config, log)


def pytest_report_header(config):
    files = len(by_night.left_out())
    return f"by night: {files} files on which nothing has changed since they passed (by_night.toml)"


def pytest_collection_modifyitems(config, items):
    """Leaves out what nothing can have broken, unless it is asked for by name.  Groups with slow
    tests come first: a long one that starts last is waited for.
    """
    asked = {arg.partition("::")[0] for arg in config.args}
    out = by_night.left_out() - asked
    gone = [item for item in items if item.nodeid.partition("::")[0] in out]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item.nodeid.partition("::")[0] not in out]
    if hasattr(config, "workerinput"):
        slow = {group_of(item.nodeid) for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: group_of(item.nodeid) not in slow)


def group_of(nodeid: str) -> str:
    """The file, and the lab of which the test is."""
    file, _, test = nodeid.partition("::")
    lab = re.search(r"\[(lab\d\d_\w+)", test)
    return f"{file} {lab[1]}" if lab else file
