"""Was an exercise not attempted, or did its code meet a function of another one that was not?

Both end in the stub's NotImplementedError.  An exercise whose own cells hold no stub any more was
attempted, whatever its code calls.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from autograder.grading.results import NOT_ATTEMPTED, TestResult
from autograder.grading.structure import defined, exercise_name

STUB = re.compile(r"""raise +NotImplementedError\( *["']Exercise""")  # as nbgrader/config.py has it
WORD = re.compile(r"\w+")


def tell_apart(
    tests: Sequence[TestResult], answers: Mapping[str, str], exercises: Sequence[str]
) -> list[TestResult]:
    """The tests; of an attempted exercise none is said not to be attempted.

    answers: grade_id of a cell -> what the student wrote there.
    """
    code = {name: own_code(name, answers) for name in exercises}
    return [
        replace(test, message=met_stub(test.exercise, code))
        if test.message == NOT_ATTEMPTED and attempted(code.get(test.exercise, ""))
        else test
        for test in tests
    ]


def own_code(exercise: str, answers: Mapping[str, str]) -> str:
    """Of ex2, ex2-b, ..."""
    own = (text for name, text in answers.items() if f"{name}-".startswith(f"{exercise}-"))
    return "\n\n".join(own)


def attempted(code: str) -> bool:
    return bool(code.strip()) and not STUB.search(code)


def met_stub(exercise: str, code: Mapping[str, str]) -> str:
    """Which stubs the code of an exercise comes to, also by functions of others that it calls."""
    seen, waiting = {exercise}, [exercise]
    while waiting:
        words = set(WORD.findall(code[waiting.pop()]))
        called = [name for name in code if name not in seen and defined(code[name]) & words]
        seen.update(called)
        waiting += called
    left = [exercise_name(name) for name in code if name in seen and STUB.search(code[name])]
    if not left and "NotImplementedError" in code[exercise]:  # its own
        return NOT_ATTEMPTED
    if not left:
        return "it called a function that was left as it was given out"
    return f"it called a function of {' or '.join(left)}, which was left as it was given out"
