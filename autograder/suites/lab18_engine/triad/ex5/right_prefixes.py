# All beginnings of all stop words once, and a regular expression for the words; told is a text.
import re


class Told:
    def __init__(self, stops):
        self.words = re.compile("|".join(map(re.escape, stops))) if stops else None
        self.starts = {stop[:n] for stop in stops for n in range(1, len(stop))}
        self.longest = max(map(len, stops), default=0)
        self.text, self.stopped = "", False

    def certain(self, text, last):
        match = (
            min((m.start() for m in [self.words.search(text)] if m), default=None)
            if self.words
            else None
        )
        if match is not None:
            self.stopped = True
            return text[:match]
        if last:
            return text
        text = text.rstrip("\ufffd")
        for at in range(max(0, len(text) - self.longest), len(text)):
            if text[at:] in self.starts:
                return text[:at]
        return text

    def add(self, text, last):
        if self.stopped:
            return ""
        piece = self.certain(text, last)[len(self.text) :]
        self.text += piece
        return piece


def take_out(running, waiting, name, again):
    entry = running.get(name)
    running = dict(item for item in running.items() if item[0] != name)
    waiting = [item for item in waiting.items() if item[0] != name]
    if again:
        waiting.insert(0, (name, (tuple(entry[0]), 0)))
    return running, dict(waiting)
