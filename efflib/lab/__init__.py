"""What a lab's notebook imports (`Lab`), and what its tests import (`exercise`, `expect_...`).

What needs torch is imported when it is first asked for: a page of cards is made without.
"""

from importlib import import_module

from efflib.lab.exercise import exercise

LATER = {
    "CheckFailed": "efflib.lab.lab",
    "Lab": "efflib.lab.lab",
    "expect_at_most": "efflib.lab.expect",
    "expect_close": "efflib.lab.expect",
    "expect_error": "efflib.lab.expect",
    "expect_number": "efflib.lab.expect",
    "expect_same": "efflib.lab.expect",
    "expect_tensor": "efflib.lab.expect",
    "expect_tuple": "efflib.lab.expect",
}
__all__ = ["exercise", *LATER]


def __getattr__(name: str) -> object:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
