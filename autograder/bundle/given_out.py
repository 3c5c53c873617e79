"""What students may read once labs are over, as files that the release of a later lab brings.

efflib.given_out says how a student's copy of efflib takes them.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from autograder.bundle.parts import Sources, read_sources
from autograder.bundle.too_early import refuse_answers
from autograder.bundle.tree import efflib_dir, hidden_parts
from autograder.bundle.withheld import Hidden, stand_in
from autograder.errors import UsageError
from autograder.labs.suites import all_suites
from efflib.given_out import FOLDER


def given_out(course_root: Path, lab: str, over: Collection[str]) -> dict[str, str]:
    """{file beside the lab's notebook: text} of the modules that these labs gave out.

    Of a module that is still withheld, the part that the others run on.  Raises UsageError.
    """
    known = all_suites(course_root)
    for name in over:
        if name not in known:
            raise UsageError(f"--with: there is no lab {name!r} (found: {', '.join(known)})")
        if name == lab:
            raise UsageError(f"--with {lab}: its own answers are not given out with it")
    refuse_answers(course_root, [lab], over)
    return dict(files(course_root, over)) if over else {}


def files(course_root: Path, over: Collection[str]) -> Iterator[tuple[str, str]]:
    sources = read_sources(efflib_dir())
    before, now = hidden_parts(course_root, ()), hidden_parts(course_root, over)
    for module in sorted(before.withheld):
        text = text_of(module, sources, now)
        if text != text_of(module, sources, before):
            yield f"{FOLDER}/{module.replace('.', '/')}.py", text


def text_of(module: str, sources: Sources, hidden: Hidden) -> str:
    if module not in hidden.withheld:
        return sources[module]
    kept = hidden.parts.get(module, ())
    return stand_in(module, sources[module], hidden.withheld[module], kept)
