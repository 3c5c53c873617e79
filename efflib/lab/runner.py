"""Runs test files with pytest in this process, undisturbed by configuration lying around."""

import contextlib
import io
import os
import sys
from pathlib import Path

from efflib.lab.report import TestReport

OPTIONS = [
    "-c",
    os.devnull,
    "--noconftest",
    "--assert=plain",  # messages are written for students; rewriting would print test data
    "--import-mode=importlib",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:terminal",
]


def run_tests(files: list[Path], student, seed: int, only: str | None = None) -> list[TestReport]:
    """Run the tests of `files`, or those of the exercise `only`, with a student and a seed.

    Returns one report for every declared test, in the order of the files; a test that did not
    report counts as failed. Raises FileNotFoundError for a missing file and RuntimeError for a
    test file that cannot be imported: both are faults of the course, not of the student.
    """
    return _pytest(files, student, seed, only, [])


def collect(files: list[Path]) -> list[TestReport]:
    """The declared tests of `files`, without running them."""
    return _pytest(files, None, 0, None, ["--collect-only"])


def _pytest(files, student, seed, only, options: list[str]) -> list[TestReport]:
    import pytest

    from efflib.lab.plugin import ExercisePlugin

    for file in files:
        if not Path(file).is_file():
            raise FileNotFoundError(f"no test file {file}")
    plugin = ExercisePlugin(student, seed, only)
    faults = _CollectionFaults()
    arguments = [
        *OPTIONS,
        *options,
        f"--rootdir={Path(files[0]).resolve().parent}",
        *(str(Path(f).resolve()) for f in files),
    ]
    with _clean_environment(), contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()):
            pytest.main(arguments, plugins=[plugin, faults])
    _forget(files)
    if faults.messages:
        raise RuntimeError("test file cannot be read: " + "; ".join(faults.messages))
    return list(plugin.reports.values())


def _forget(files) -> None:
    """Drop the test modules: pytest would hand the next run of a file of that name the same one."""
    paths = {str(Path(file).resolve()) for file in files}
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)) in paths:
            del sys.modules[name]


class _CollectionFaults:
    """Remembers test files that could not be imported."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.messages.append(str(report.longrepr)[-500:])


@contextlib.contextmanager
def _clean_environment():
    """Without the user's pytest options and plugins, restored afterwards."""
    saved = {k: os.environ.get(k) for k in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    saved["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    for key in saved:
        os.environ.pop(key, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        for key, value in saved.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value
