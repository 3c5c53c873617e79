"""Servers for tests: in a thread of this process, or a process of its own."""

import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import httpx
import uvicorn

from efflib.engine.engine import Engine
from efflib.engine.languages import Language
from efflib.engine.server import Limits, Server

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,:;!?\n-"[:61]
WAIT = 120  # seconds for what must come, on a machine that is busy


def letters() -> Language:
    """A token is a letter."""

    def encode(text: str) -> list[int]:
        return [max(LETTERS.find(letter), 0) for letter in text]

    return Language(
        encode,
        lambda ids: "".join(LETTERS[i] for i in ids),
        lambda messages: encode("".join(content for _, content in messages)),
        frozenset(),
    )


@contextlib.contextmanager
def in_a_thread(engine: Engine, **limits: int) -> Iterator[tuple[str, Server]]:
    """(address, server) of a server that ends with the block."""
    served = Server(engine, letters(), "small", Limits(**limits))
    server = uvicorn.Server(uvicorn.Config(served.app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", served
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def as_a_process(*arguments: str) -> Iterator[str]:
    """The address of `python -m efflib.engine ...`."""
    command = [sys.executable, "-m", "efflib.engine", *arguments, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    break
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1]
        finally:
            process.terminate()


def until(true) -> None:
    """Waits for it, and fails if it does not come."""
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def health(address: str) -> dict:
    return httpx.get(f"{address}/health", timeout=WAIT).json()


def expect_empty(address: str) -> None:
    """Nobody runs or waits, and all blocks are free: soon."""
    until(lambda: health(address)["open"] == 0 and not health(address)["running"])
    until(lambda: health(address)["free"] == health(address)["blocks"])
