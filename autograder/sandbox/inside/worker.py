"""Runs inside a sandbox: runs cells, calls functions by name, runs drivers.

It reads requests from one pipe and writes answers to another (frames as in wire.py), and knows
neither tests nor expected values. Student code runs in this process and may do anything to it; so
the grader takes what comes out as what the student says, and nothing more.
"""

import _signal as signal  # what is in `signal` looks for each handler among names of its own
import ast
import asyncio
import builtins
import gc
import inspect
import json
import linecache
import os
import sys
import threading
import traceback
import types
from functools import partial

__builtins__ = dict(vars(builtins))  # for the functions below: student code may delete builtins

MAX_FRAME = 64 * 2**20
REPEAT_SECONDS = 0.5  # for code that catches the time limit's exception and goes on
# CPU time of this process, and time that passes: for code that waits, a generous one.
TIMERS = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}


class TimeIsUp(BaseException):
    """Raised in student code at its time limit; `except Exception` does not catch it."""


class Worker:
    """The pipes, the student's namespace, and the time limit of what is running."""

    def __init__(self, read_fd: int, write_fd: int, codec, calls, seeds, shell) -> None:
        self.read_fd, self.write_fd, self.seed_all = read_fd, write_fd, seeds.seed_all
        self.codec, self.calls, self.new_output = codec, calls, shell.Output
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.open, self.armed, self.late, self.limits, self.cells = [], False, False, {}, 0
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        self.namespace = vars(module)
        ipython = shell.Shell(self.namespace)
        self.namespace["get_ipython"] = lambda: ipython
        self.namespace["display"] = lambda *_, **__: None

    # ---- frames ----------------------------------------------------------------------------------

    def read(self, size: int) -> bytes:
        data, done = bytearray(size), 0
        while done < size:
            count = os.readv(self.read_fd, [memoryview(data)[done:]])
            if not count:
                os._exit(0)
            done += count
        return bytes(data)

    def receive(self) -> dict:
        frame, lent = self.read(int.from_bytes(self.read(4), "big")), []
        request = self.codec.unpack(frame, partial(self.callback, lent))
        lent.append(request["nonce"])
        return request

    def send(self, frame: bytes) -> None:
        data = memoryview(len(frame).to_bytes(4, "big") + frame)
        while data:
            data = data[os.write(self.write_fd, data) :]

    # ---- student code under a time limit ---------------------------------------------------------

    def on_alarm(self, number: int, _) -> None:
        self.seconds = self.limits[number]
        if self.armed:
            raise TimeIsUp
        self.late = True

    def wind(self) -> None:
        """The time limit begins now."""
        for number, seconds in self.limits.items():
            signal.signal(number, self.on_alarm)
            signal.setitimer(TIMERS[number], seconds, REPEAT_SECONDS)

    def limited(self, limits: tuple[float, float], work) -> bytes:
        """The frame that `work` returns, or one that says what went wrong."""
        outermost, before = len(self.open) == 1, self.armed
        if outermost:
            self.limits, self.late = dict(zip(TIMERS, limits, strict=True)), False
            self.wind()
        try:
            self.armed = True
            frame = work()
            self.armed = before
            return frame
        except TimeIsUp:
            self.armed = before
            info = self.timeout()
        except self.codec.CodecError as fault:
            self.armed = before
            info = {"kind": "TypeError", "message": str(fault), "line": ""}
        except BaseException as fault:
            self.armed = before
            info = self.describe(fault)
        finally:
            if outermost:
                for timer in TIMERS.values():
                    signal.setitimer(timer, 0)
            if os.getpid() != self.pid:  # student code forked, and the child came back here
                os._exit(0)
        return self.codec.pack({"nonce": self.open[-1], "error": info})

    def timeout(self) -> dict:
        return {"kind": "Timeout", "message": f"stopped after {self.seconds:g} s", "line": ""}

    def describe(self, fault: BaseException) -> dict:
        full = isinstance(fault, MemoryError)
        if full:  # the student's variables go first: describing needs memory too
            traceback.clear_frames(fault.__traceback__)
        try:
            info = self.calls.describe(fault)
            self.codec.pack(info)
            return info
        except BaseException:
            return {"kind": "MemoryError" if full else "Exception", "message": "", "line": ""}

    # ---- requests --------------------------------------------------------------------------------

    def serve(self) -> None:
        while True:
            self.answer(self.receive())

    def answer(self, request: dict) -> None:
        nonce = request["nonce"]
        self.open.append(nonce)
        before = sys.stdout, sys.stderr
        output = sys.stdout = sys.stderr = self.new_output()
        limits = request["seconds"], request["wall"]
        frame = self.limited(limits, partial(self.result, request, output))
        sys.stdout, sys.stderr = before
        self.open.pop()
        self.send(frame)

    def result(self, request: dict, output) -> bytes:
        operation = request["op"]
        if operation == "cell":
            value = self.cell(request["source"], output)
        elif operation == "call":
            self.seed_all(request["seed"])
            name, args, kwargs = request["name"], request["args"], request["kwargs"]
            value = self.calls.call(self.namespace, name, args, kwargs)
        elif operation == "many":
            value = [self.one_of_many(request["name"], *call) for call in request["calls"]]
        elif operation == "drive":
            self.seed_all(request["seed"])
            given = (request[key] for key in ("source", "name", "args", "kwargs"))
            value = self.calls.drive(self.namespace, *given)
        else:
            value = "ready"
        frame = self.codec.pack({"nonce": self.open[-1], "ok": value})
        if len(frame) > MAX_FRAME:
            raise self.codec.CodecError(f"{len(frame)} bytes were returned, too many to be sent")
        return frame

    def one_of_many(self, name: str, args: tuple, kwargs: dict, seed: int):
        """Each call has the whole time limit."""
        if len(self.open) == 1:
            self.wind()
        self.seed_all(seed)
        return self.calls.call(self.namespace, name, args, kwargs)

    def cell(self, source: str, output) -> dict:
        """{"error": description or None, "line": where it ended, "stdout": text} of a cell."""
        code, line, info = None, 0, None
        self.cells += 1
        name = f"<cell {self.cells}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        try:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(source, name, "exec", flags=flags, dont_inherit=True)
            waiting = eval(code, self.namespace)
            if inspect.iscoroutine(waiting):
                asyncio.run(waiting)
        except TimeIsUp as fault:
            line, info = reached(fault, code), self.timeout()
        except BaseException as fault:
            line, info = reached(fault, code), self.describe(fault)
        return {"error": info, "line": line, "stdout": output.text()}

    def callback(self, lent: list, index: int, args: tuple, kwargs: dict):
        """Calls a function of the test, which runs in the grader, and waits for its answer."""
        if threading.get_ident() != self.thread or os.getpid() != self.pid:
            raise RuntimeError("a function of the test can be called in the main thread only")
        if lent[0] not in self.open:
            raise RuntimeError("a function of the test can be called during its test only")
        self.calls.room()
        request = {"nonce": lent[0], "callback": index, "args": args, "kwargs": kwargs}
        frame, before, self.armed = self.codec.pack(request), self.armed, False
        self.send(frame)  # not armed: no exception in the middle of a frame
        while (reply := self.receive())["op"] != "reply":
            self.answer(reply)
        self.armed = before
        if self.late:
            raise TimeIsUp
        if "error" in reply:
            kind = getattr(builtins, reply["error"], None)
            known = isinstance(kind, type) and issubclass(kind, Exception)
            raise (kind if known else RuntimeError)("raised by a function of the test")
        return reply["ok"]


def reached(fault: BaseException, code: types.CodeType | None) -> int:
    """The line of a cell, outside of its functions, at which it ended; 0: it did not begin."""
    lines = [n for frame, n in traceback.walk_tb(fault.__traceback__) if frame.f_code is code]
    return (lines or [0])[0]


def main(settings: dict) -> None:
    """settings: path, and read, write and limits; or zygote, a socket that asks for workers."""
    sys.path[:0] = settings["path"]
    gc.disable()  # imports make many objects, and hardly any garbage
    import confine
    import student_shell
    import torch

    from efflib.lab import calls, codec, seeds

    torch.set_num_threads(1)
    pipes = [settings.get("read"), settings.get("write")]
    if "zygote" in settings:
        import zygote

        list(map(__import__, settings["preload"]))  # once, not in each worker when it needs them
        gc.freeze()
        pipes, settings = zygote.forked(settings["zygote"])
    gc.enable()
    os.chdir(os.environ["HOME"])
    seeds.seed_all(0)
    fds = confine.keep_only(*pipes)
    confine.set_limits(**settings["limits"])
    sys.argv = [""]
    Worker(*fds, codec, calls, seeds, student_shell).serve()


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
    os._exit(1)
