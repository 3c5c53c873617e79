# The longest end that begins a stop word, by trying lengths from long to short.


class Told:
    def __init__(self, stops):
        self.stops = list(stops)
        self.n = 0
        self.stopped = False

    def held(self, text):
        for n in range(len(text), 0, -1):
            for stop in self.stops:
                if n < len(stop) and stop.startswith(text[len(text) - n :]):
                    return n
        return 0

    def add(self, text, last):
        if self.stopped:
            return ""
        found = [text.find(stop) for stop in self.stops]
        found = [at for at in found if at >= 0]
        if found:
            self.stopped = True
            return text[self.n : min(found)]
        end = len(text)
        if not last:
            while end > 0 and text[end - 1] == "\ufffd":
                end -= 1
            end -= self.held(text[:end])
        piece = text[self.n : end]
        self.n = max(self.n, end)
        return piece


def take_out(running, waiting, name, again):
    new_running = {}
    for other in running:
        if other != name:
            new_running[other] = running[other]
    new_waiting = {name: [running[name][0], 0]} if again else {}
    for other in waiting:
        if other != name:
            new_waiting[other] = waiting[other]
    return new_running, new_waiting
