"""From the bytes of a notebook file to its JSON, where they leave no doubt what was meant."""

import codecs
import json
import re

MAX_OLD_CELLS = 2_000
CONFLICT = ("<<<<<<< ", ">>>>>>> ")
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A string as a whole (an unfinished one reaches to the end), or a comma before a closing bracket.
STRING_OR_COMMA = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))|,(?=\s*+[\]}])', re.DOTALL)


class NotebookError(Exception):
    """The file is not a notebook that can be graded; the text is for the student."""


def load_json(data: bytes) -> tuple[object, list[str]]:
    """(what the file holds, notes on what was mended). Raises NotebookError."""
    if not data.strip():
        raise NotebookError("the file is empty")
    text, lossless = decode(data)
    notes = [] if lossless else ["The file holds bytes that are not UTF-8: they were replaced."]
    try:
        return json.loads(text, strict=False), notes  # strict: no line ends, tabs inside strings
    except RecursionError:
        raise NotebookError("the file is nested too deeply to be a notebook") from None
    except ValueError as error:
        problem = error
    try:
        mended = STRING_OR_COMMA.sub(lambda match: match[1] or "", text)
        notes.append("Commas before closing brackets of the file were left out.")
        return json.loads(mended, strict=False), notes
    except (ValueError, RecursionError):
        raise NotebookError(not_json(text, lossless, problem)) from None


def decode(data: bytes) -> tuple[str, bool]:
    """(text, whether that is all of it): bytes that are not UTF-8 become U+FFFD."""
    try:
        return data.decode("utf-16" if data[:2] in UTF16 else "utf-8-sig"), True
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace"), False


def not_json(text: str, lossless: bool, error: ValueError) -> str:
    """What is wrong with a file that is not JSON, as its owner can mend it."""
    if any(line.startswith(CONFLICT) for line in text.splitlines()):
        return "the file holds merge-conflict markers (<<<<<<<): resolve the conflict first"
    begun = text.lstrip().startswith('{"') or re.match(r'\s*\{\s*"', text)
    if begun and cut_off(text, error):
        return "the file ends in the middle of the notebook: save it again and hand in the whole"
    if not lossless:
        return "the file is not a notebook (not text in UTF-8)"
    return "the file is not a notebook (not JSON)"


def cut_off(text: str, error: ValueError) -> bool:
    """Did the JSON end before it was finished?"""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")


def to_format_4(content: object) -> tuple[object, list[str]]:
    """Notebooks of format 3 (until 2015) have their cells in worksheets; others stay as they are.

    Raises NotebookError if it calls itself one and nbformat cannot convert it.
    """
    old = isinstance(content, dict) and content.get("nbformat") == 3 and "cells" not in content
    if not old or not isinstance(content.get("worksheets"), list):
        return content, []
    sheets = [sheet for sheet in content["worksheets"] if isinstance(sheet, dict)]
    if sum(len(list(sheet.get("cells") or ())) for sheet in sheets) > MAX_OLD_CELLS:
        raise NotebookError(f"the notebook has more than {MAX_OLD_CELLS} cells")
    import nbformat

    try:
        made = nbformat.convert(nbformat.from_dict(content), 4)
    except Exception:  # whatever stands in it; nbformat checks little before it takes it apart
        words = "the notebook is of format 3 and cannot be converted: save it again with Jupyter"
        raise NotebookError(words) from None
    return made, ["The notebook is of format 3 and was converted to format 4."]
