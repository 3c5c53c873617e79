"""What a lab adds to the demonstration class: autograder/suites/<lab>/demo.toml."""

import msgspec

from autograder.labs.manifest import LabSpec


class Endless(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Code that does not end on some inputs, after a right solution; the tests that then fail."""

    exercise: str
    code: str
    fails: tuple[str, ...]


class Entries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers to the written questions, wrong variants by exercise, and an endless loop."""

    answers: dict[str, str]
    partly_right: dict[str, str]
    endless: Endless


def load_entries(lab: LabSpec) -> Entries:
    """Raises FileNotFoundError for a lab without a demo.toml, msgspec.ValidationError."""
    return msgspec.toml.decode((lab.suite_dir / "demo.toml").read_bytes(), type=Entries)
