"""What cells find around them in grading: a stdout of limited length, a stub of IPython's shell."""

import io

STDOUT_CHARS = 10_000


class Output(io.TextIOBase):
    """sys.stdout and sys.stderr of student code: keeps the beginning, drops the rest."""

    def __init__(self) -> None:
        self.parts, self.left = [], STDOUT_CHARS

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            self.parts.append(str(text)[: self.left])
            self.left -= len(self.parts[-1])
        return len(text)

    def text(self) -> str:
        return "".join(self.parts).encode(errors="replace").decode()


class Nothing:
    """Whatever one asks of it, it does nothing."""

    def __call__(self, *_, **__):
        return None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class Shell:
    """What get_ipython() returns: magics with a body run it, everything else does nothing."""

    STATEMENTS = {"time", "timeit", "prun", "memit"}
    BODIES = {"time", "timeit", "capture", "prun", "python", "python3"}

    def __init__(self, namespace: dict) -> None:
        self.user_ns = namespace

    def run_line_magic(self, name, line="", *_):
        if name in self.STATEMENTS and line.strip():
            return exec(line.strip(), self.user_ns)
        return self._note(f"%{name}")

    def run_cell_magic(self, name, line="", cell=""):
        if name in self.BODIES:
            return exec(cell, self.user_ns)
        return self._note(f"%%{name}")

    def system(self, command=""):
        return self._note("!")

    def getoutput(self, command="", *_, **__):
        self._note("!")
        return []

    def _note(self, what: str) -> None:
        print(f"[grading does not run {what}]")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()
