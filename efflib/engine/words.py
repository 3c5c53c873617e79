"""Text out of tokens, piece by piece, and where it has to stop.

A character may be spread over several tokens, and a stop word over several characters.  So what
might still become either is held back until it is decided:

    told      what a client has
    held      the end of the text that could begin a stop word, or is half a character
"""

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"  # what half a character decodes to


def held_back(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of a text are the beginning of a stop word."""
    longest = max(map(len, stops), default=1)
    for n in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-n:]) for stop in stops):
            return n
    return 0


class Words:
    """The text of one answer."""

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str] = ()) -> None:
        """decode: of all tokens of the answer.  stops: none of them is empty."""
        self.decode, self.stops = decode, tuple(stops)
        self.ids: list[int] = []
        self.text = ""
        self.stopped = False

    def add(self, tokens: Sequence[int], last: bool) -> str:
        """The next piece of text, "" while nothing is certain; `stopped` if a stop word came.

        What stands before the first stop word is the answer, itself is not part of it.
        """
        piece = ""
        for token in tokens:  # one by one, so that a stop word ends the count of tokens, too
            self.ids.append(token)
            piece += self._told(self.decode(self.ids), False)
            if self.stopped:
                return piece
        return piece + (self._told(self.decode(self.ids), True) if last else "")

    def _told(self, text: str, last: bool) -> str:
        places = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if places:
            self.stopped, end = True, min(places)
        else:
            whole = text if last else text.rstrip(UNFINISHED)
            end = len(whole) - (0 if last else held_back(whole, self.stops))
        piece = text[len(self.text) : end]
        self.text += piece
        return piece
