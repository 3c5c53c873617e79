"""Runs test files with pytest in this process, undisturbed by whatever lies around.

Each file gets a pytest session of its own, without configuration, conftest, plugins and options of
the surroundings; what pytest and the tests change in this process is put back afterwards.  Who runs
the same files for many students collects them once (`collected`) and forks for each student.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from efflib.lab import seeds
from efflib.lab.report import TestReport

NEEDLESS = "cacheprovider terminal logging faulthandler unraisableexception threadexception doctest"
OPTIONS = [
    *("-c", os.devnull),
    "--noconftest",
    "--assert=plain",  # messages are written for students; rewriting would print test data
    "--import-mode=importlib",
    "--capture=no",  # output is swallowed here, below
    *(part for plugin in NEEDLESS.split() for part in ("-p", f"no:{plugin}")),
]
COLLECT = ["--collect-only"]
# The last one is set and removed by pytest itself, also for a pytest that runs around this one.
VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DEBUG", "PYTEST_CURRENT_TEST")


After = Callable[[Path, list[TestReport]], list[TestReport]]


class TestFileError(RuntimeError):
    """A test file that cannot be imported or declares its tests wrongly: a fault of the course."""

    __test__ = False  # its name would make pytest take it for a test


def run_tests(
    files: list[Path],
    student,
    seed: int,
    only: str | None = None,
    names: frozenset[str] | None = None,
    after: After | None = None,
) -> list[TestReport]:
    """Run the tests of `files` with a student and a seed.

    only: an exercise, the tests of which run; names: of test functions, only which run.
    after: what it makes of a file's reports takes their place, before the next file's tests run.

    Returns one report for every declared test, in the order of the files; a test that did not
    report counts as failed, also those that Ctrl-C has kept from running.  Raises FileNotFoundError
    and TestFileError, whatever the student's code does.
    """
    plugin = _waiting.pop(tuple(files), None) if only is names is None else None
    if plugin is not None:
        return plugin.run(student, seed, after)
    reports, options = [], []
    for file in files:
        plugin = _session(Path(file), student, seed, only, names, options)
        options = COLLECT if plugin.interrupted else options
        own = plugin.reports()
        reports += after(Path(file), own) if after and not options else own
    return reports


_waiting: dict[tuple[Path, ...], object] = {}  # files -> the plugin that has collected them


def collected(files: list[Path], work: Callable[[], None]) -> None:
    """work(), during which the next run of all tests of `files` need not collect them.

    Only the next one: what it leaves behind in the modules of the files must not meet another.  So
    each run belongs into a process of its own, forked in work().  Raises as `run_tests`.
    """
    from efflib.lab.plugin import WaitingPlugin

    def wait(plugin) -> None:
        _waiting[tuple(files)] = plugin
        try:
            work()
        finally:
            _waiting.pop(tuple(files), None)

    run_session(files, WaitingPlugin(wait))


def collect(files: list[Path]) -> list[TestReport]:
    """The declared tests of `files`, without running them. Raises as `run_tests`."""
    return [r for f in files for r in _session(Path(f), None, 0, None, None, COLLECT).reports()]


def _session(file: Path, student, seed: int, only: str | None, names, options: list[str]):
    """The plugin after a pytest session with one file."""
    from efflib.lab.plugin import ExercisePlugin

    plugin = ExercisePlugin(student, seed, only, names)
    run_session([file], plugin, options)
    return plugin


def run_session(files: Sequence[Path], plugin, options: Sequence[str] = ()) -> None:
    """A pytest session with these files and an ExercisePlugin. Raises as `run_tests`."""
    import pytest

    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"no test file {file}")
    files = [file.resolve() for file in files]
    with contextlib.ExitStack() as stack:
        for file in files:
            stack.enter_context(_isolated(file))
        arguments = [*OPTIONS, *options, f"--rootdir={files[0].parent}", *map(str, files)]
        code = pytest.main(arguments, plugins=[plugin])
    if code == pytest.ExitCode.USAGE_ERROR:
        plugin.faults.append("pytest cannot use it")
    if plugin.faults:
        named = " and ".join(map(str, files))
        raise TestFileError(f"test file {named} cannot be used: " + "; ".join(plugin.faults))


@contextlib.contextmanager
def _isolated(file: Path) -> Iterator[None]:
    """Nothing comes in from the surroundings of a run, and nothing of it stays."""
    environment = {name: os.environ.pop(name, None) for name in VARIABLES}
    autoload = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = autoload
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # pytest takes a module of the file's name, if there is one, for the file: another lab's tests.
    module = sys.modules.pop(file.stem, None)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    numbers = seeds.states()
    finders = sys.meta_path[:]  # a pytest that runs around this one would rewrite the assertions
    sys.meta_path[:] = [f for f in finders if type(f).__name__ != "AssertionRewritingHook"]
    stdin, sys.stdin = sys.stdin, io.StringIO()  # input() meets an end of file, as in grading
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.stdin, sys.meta_path[:] = stdin, finders
        seeds.restore(numbers)
        sys.dont_write_bytecode = bytecode
        sys.modules.pop(file.stem, None)
        if module is not None:
            sys.modules[file.stem] = module
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
