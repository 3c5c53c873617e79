"""What a notebook showed when it was handed in, reduced to what can do no harm.

Kept are printed text, plain-text results, errors (name and message) and PNG pictures; HTML, SVG,
JavaScript, widgets and metadata are not.  Text loses its control characters.  A picture is taken
apart and put together again from the chunks that hold pixels, and must unpack to exactly the size
that it states.  Everything is capped: in number, in bytes, in pixels.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from autograder.intake.png import sound_png

MAX_OF_CELL = 20  # outputs
MAX_TEXT = 4_000  # characters of one output
MAX_PNG = 500_000  # bytes of one picture
MAX_ALL = 2_000_000  # characters of text and of base64, of all cells
MAX_PIXELS = 20_000_000  # of all cells
MAX_LINES = 20_000  # parts into which JSON may have cut one text
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
LEFT_OUT = "(outputs of other kinds, or too many or too large, are left out)"


@dataclass(frozen=True)
class Output:
    """kind: "text" (printed), "result", "error" or "picture" (text is then base64 of a PNG)."""

    kind: str
    text: str


class Room:
    """What the outputs of one notebook may still use up."""

    def __init__(self) -> None:
        self.chars, self.pixels = MAX_ALL, MAX_PIXELS

    def take(self, output: Output | None, pixels: int = 0) -> Output | None:
        """The output if there is room for it, and less room afterwards."""
        if output is None or len(output.text) > self.chars or pixels > self.pixels:
            return None
        self.chars, self.pixels = self.chars - len(output.text), self.pixels - pixels
        return output


def kept_outputs(cells: list) -> list[tuple[Output, ...]]:
    """The outputs of each cell of a decoded notebook, whatever JSON stands there."""
    room = Room()
    return [outputs_of(cell, room) for cell in cells]


def outputs_of(cell: object, room: Room) -> tuple[Output, ...]:
    raw = cell.get("outputs") if isinstance(cell, dict) else None
    if not isinstance(raw, list) or not raw:
        return ()
    found = [list(one_output(item, room)) for item in raw[:MAX_OF_CELL]]
    kept = tuple(output for outputs in found for output in outputs)
    if all(found) and len(raw) <= MAX_OF_CELL:
        return kept
    return (*kept, Output("text", LEFT_OUT))


def one_output(raw: object, room: Room) -> Iterator[Output]:
    """The picture of an output, else its text; nothing if it is of another kind."""
    raw = raw if isinstance(raw, dict) else {}
    kind, data = raw.get("output_type"), raw.get("data")
    if kind == "stream":
        found = room.take(text_output("text", raw.get("text")))
    elif kind == "error":
        name, value = plain(raw.get("ename")), plain(raw.get("evalue"))
        found = room.take(text_output("error", f"{name or 'Error'}: {value}"))
    elif kind in ("display_data", "execute_result") and isinstance(data, dict):
        found = picture(data.get("image/png"), room)
        found = found or room.take(text_output("result", data.get("text/plain")))
    else:
        found = None
    if found is not None:
        yield found


def text_output(kind: str, raw: object) -> Output | None:
    text = plain(raw)
    return Output(kind, text) if text.strip() else None


def as_text(raw: object, limit: int) -> str:
    """JSON's text, which may be a list of lines; nothing else, and not more than limit."""
    if isinstance(raw, list):
        raw = "".join(line[:limit] for line in raw[:MAX_LINES] if isinstance(line, str))
    return raw[: limit + 1] if isinstance(raw, str) else ""


def plain(raw: object) -> str:
    """Text of letters, blanks and line ends: no escape sequences, no direction characters."""
    text = ANSI.sub("", as_text(raw, 4 * MAX_TEXT)).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]  # progress bars
    shown = "".join(c for c in "\n".join(lines) if c in "\n\t" or unicodedata.category(c)[0] != "C")
    return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + " ... (cut)"


def picture(raw: object, room: Room) -> Output | None:
    """A sound PNG as base64 of our own making; None for anything else."""
    limit = MAX_PNG * 3 // 2
    text = re.sub(r"\s", "", as_text(raw, limit))
    if not text or len(text) > limit:
        return None
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    sound = sound_png(data, room.pixels) if len(data) <= MAX_PNG else None
    if sound is None:
        return None
    return room.take(Output("picture", base64.b64encode(sound.data).decode()), sound.pixels)
