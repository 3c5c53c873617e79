"""Frames between grader and worker: 4 bytes of length, big-endian, then that many bytes.

Whoever writes on the worker's side may be the student, so reading has a limit (clock.py) that slow
dripping does not extend, a cap per frame and a cap per channel, and an answer nobody asked for is a
fault.
"""

import os
import select

from autograder.sandbox.clock import Meter

MAX_FRAME = 64 * 2**20
MAX_RECEIVED = 2 * 2**30  # bytes that one worker may send in all
CHUNK = 2**20
HEADER = 4
CLOSED = -1


class WireError(Exception):
    """The other side broke the protocol. kind: "late", "closed" or "protocol"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Channel:
    """The grader's ends of two pipes, which it owns."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd, self._received = read_fd, write_fd, 0
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(read_fd, select.POLLIN)
        self._writable.register(write_fd, select.POLLOUT)

    def close(self) -> None:
        """Closes the pipes; using them afterwards is a WireError, whoever has their numbers now."""
        for fd in {self._read_fd, self._write_fd} - {CLOSED}:
            os.close(fd)
        self._read_fd = self._write_fd = CLOSED

    def send(self, frame: bytes, meter: Meter) -> None:
        """Raises WireError; ValueError for a frame beyond the cap."""
        if len(frame) > MAX_FRAME:
            raise ValueError(f"a frame of {len(frame)} bytes; at most {MAX_FRAME} can be sent")
        data = memoryview(len(frame).to_bytes(HEADER, "big") + frame)
        while data:
            self._check_open(self._write_fd)
            try:
                data = data[os.write(self._write_fd, data[:CHUNK]) :]
            except BlockingIOError:
                self._wait(self._writable, meter)
            except OSError:
                raise WireError("closed", "it ended its process") from None

    def receive(self, meter: Meter) -> bytes:
        """One frame. Raises WireError."""
        self._wait(self._readable, meter)  # once for each frame, however many come
        size = int.from_bytes(self._read(HEADER, meter), "big")
        if size > MAX_FRAME:
            raise WireError("protocol", f"it announced {size} bytes; at most {MAX_FRAME} are read")
        self._received += size
        if self._received > MAX_RECEIVED:
            raise WireError("protocol", f"it sent more than {MAX_RECEIVED} bytes in all")
        return self._read(size, meter)

    def check_quiet(self) -> None:
        """Raises WireError if something arrived that nobody asked for, or the worker has gone."""
        self._check_open(self._read_fd)
        for _, events in self._readable.poll(0):
            if events & select.POLLIN:
                raise WireError("protocol", "it sent something that nobody asked for")
            raise WireError("closed", "it ended its process")

    def _read(self, size: int, meter: Meter) -> bytes:
        data, done = bytearray(size), 0
        while done < size:
            self._check_open(self._read_fd)
            try:
                count = os.readv(self._read_fd, [memoryview(data)[done:]])
            except BlockingIOError:
                self._wait(self._readable, meter)
                continue
            if not count:
                raise WireError("closed", "it ended its process")
            done += count
        return bytes(data)

    def _check_open(self, fd: int) -> None:
        if fd == CLOSED:
            raise WireError("closed", "its sandbox was closed")

    def _wait(self, end: select.poll, meter: Meter) -> None:
        self._check_open(self._read_fd)  # both ends are closed together
        while left := meter.left():
            if end.poll(left * 1000):
                return
        raise WireError("late", "no answer in time")
