"""Turns a notebook cell into plain Python: IPython's syntax in, what grading can run out.

    %time x = f()      ->  x = f()           (also %timeit, %prun, and %%time and %%capture cells)
    !pip install q     ->  pass              with a note: grading has no shell and no network
    %matplotlib inline ->  pass

IPython's own transformer reads the syntax (prompts and leading indentation as well); it runs only
on cells that are not Python as they stand.  The cell's lines keep their numbers.
"""

import ast
import functools
import re
import warnings
from typing import NamedTuple

BODY_MAGICS = {"time", "timeit", "capture", "prun", "python", "python3"}
STATEMENT_MAGICS = {"time", "timeit", "prun", "memit"}
QUIET_MAGICS = {"matplotlib", "load_ext", "reload_ext", "autoreload", "config", "pinfo", "pinfo2"}
TIMEIT_OPTIONS = re.compile(r"(?:-[nrp]\s*\d+\s+|-[a-z]+\s+)*")
SHELL_CALL = re.compile(
    r"^(?P<indent>\s*)(?P<target>[^#'\"]*?=\s*)?get_ipython\(\)\.(?P<what>\w+)\((?P<args>.*)\)\s*$"
)
MAGIC_LINE = re.compile(r"^[ \t]*[%!?,;/]|=[ \t]*[%!]|\?[ \t]*$", re.MULTILINE)
MAX_LINE = 2_000  # longer lines are left alone: the pattern above is quadratic in blanks
PROMPT = re.compile(r"^[ \t]*(?:>>>|\.\.\.|In \[)", re.MULTILINE)
MAX_WORK = 2_000_000  # characters times magics: IPython reads the cell again for each magic
MAX_NOTEBOOK_WORK = 5_000_000  # the same for a notebook with all its cells: some seconds


@functools.lru_cache(maxsize=500)  # of a notebook: each cell is asked for several times
def syntax_error(source: str) -> str | None:
    """Why the text is not Python (as a cell: top-level await is allowed), or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            compile(source, "<cell>", "exec", flags=flags, dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, OverflowError, MemoryError, RecursionError) as error:
        return str(error) or type(error).__name__
    return None


def to_python(source: str) -> tuple[str, tuple[str, ...]]:
    """(Python, notes) of a cell; text that is not even IPython's syntax comes back as it is."""
    if syntax_error(source) is None:
        return source, ()
    if cell_magic(source):
        lines = source.split("\n")
        first = first_line(lines)
        name = lines[first][2:].split(maxsplit=1)[0] if lines[first][2:].strip() else ""
        if name not in BODY_MAGICS:
            return "", (f"it starts with %%{name[:30]}, which grading does not run",)
        lines[first] = "# " + lines[first]
        return to_python("\n".join(lines))
    if not is_ipython(source) or work(source) > MAX_WORK:
        return source, ()
    transformed = transform(source)
    rewritten = [plain_line(line) for line in transformed.split("\n")]
    notes = dict.fromkeys(note for _, note in rewritten if note)
    return "\n".join(line for line, _ in rewritten), tuple(notes)


def first_line(lines: list[str]) -> int:
    """Number of the first line that is neither blank nor a comment."""
    return next((i for i, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)


def cell_magic(source: str) -> bool:
    lines = source.split("\n")
    return lines[first_line(lines)].startswith("%%")


def indented(source: str) -> bool:
    lines = (line for line in source.split("\n") if line.strip())
    return next(lines, "").startswith((" ", "\t"))


def is_ipython(source: str) -> bool:
    """Whether IPython might read the text as something else than Python does."""
    return bool(MAGIC_LINE.search(source) or PROMPT.search(source)) or indented(source)


def work(source: str) -> int:
    """How much there is to read, in characters: IPython reads a cell again for each magic."""
    return len(source) * (1 + len(MAGIC_LINE.findall(source)))


class Reading(NamedTuple):
    """A cell as Python. sound: it parses; changed: it is not the text of the cell."""

    python: str
    notes: tuple[str, ...]
    sound: bool
    changed: bool


class Reader:
    """to_python for one notebook: reads no cell twice, and stops where it would take too long.

    left: work that may still be done; from 0 on, cells come back as they are.
    """

    def __init__(self, left: int = MAX_NOTEBOOK_WORK) -> None:
        self.left, self._known = left, {}

    def __call__(self, source: str) -> Reading:
        if source not in self._known:
            self.left -= work(source)
            if self.left < 0:
                return Reading(source, (), sound=False, changed=False)
            python, notes = to_python(source)
            sound = syntax_error(python) is None
            self._known[source] = Reading(python, notes, sound, changed=python != source)
        return self._known[source]


def transform(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TransformerManager().transform_cell(source).rstrip("\n")
    except Exception:  # a tokenizer on hostile text: SyntaxError, TokenError, RecursionError, ...
        return source


def plain_line(line: str) -> tuple[str, str]:
    """(line without a call of IPython's shell, note or "")."""
    match = SHELL_CALL.match(line) if len(line) <= MAX_LINE else None
    if match is None:
        return line, ""
    try:
        arguments = ast.literal_eval(f"({match['args']},)")
    except (ValueError, SyntaxError):
        return line, ""
    indent, target, what = match["indent"], match["target"] or "", match["what"]
    if not all(isinstance(argument, str) for argument in arguments):
        return line, ""
    if what == "run_line_magic" and len(arguments) == 2:
        return line_magic(indent, target, *arguments)
    if what in ("system", "getoutput") and len(arguments) == 1:
        return nothing(indent, target), f"`!{arguments[0][:40]}` was not run (no shell in grading)"
    return line, ""


def line_magic(indent: str, target: str, name: str, text: str) -> tuple[str, str]:
    if name in STATEMENT_MAGICS:
        statement = text[TIMEIT_OPTIONS.match(text).end() :] if name != "time" else text
        plain = f"{target}{statement}"
        if statement and syntax_error(plain) is None:
            return indent + plain, ""
    note = "" if name in QUIET_MAGICS else f"`%{name} {text}`"[:45] + " was not run in grading"
    return nothing(indent, target), note


def nothing(indent: str, target: str) -> str:
    return f"{indent}{target}None" if target else f"{indent}pass"
