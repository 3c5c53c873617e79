"""A process that imports torch and collects a suite once, and forks a child for each job.

What a job changes (modules, variables, the environment, random numbers) ends with its child, so the
next one finds nothing of it.  Only a process with one thread may fork: no library that starts
threads runs anything here.

    whoever asks, over a socket  one message for each job, with two descriptors: a file with the
                                 pickled job, and a pipe
    child, over that pipe        its process id; the kind and length of what follows; an answer, or
                                 a pickled exception.  The pipe closed before: it died
    the socket closed            the end, for all children too
"""

import atexit
import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing import spawn

from autograder.grading import later
from autograder.sandbox import ahead, own_memory, warm

HEADER = struct.Struct("=i")  # process id
KIND = struct.Struct("=cq")  # ANSWER or FAULT, bytes
ANSWER, FAULT = b"+", b"-"
PR_SET_PDEATHSIG = 1
STOP_SECONDS = 10.0
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def main(requests_fd: int, setting_fd: int) -> None:
    """setting_fd: a file with what a process needs to unpickle jobs, and what to do before them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks, and who then ends this
    gc.disable()  # imports make many objects, and hardly any garbage
    with os.fdopen(setting_fd, "rb") as file:
        file.seek(0)
        spawn.prepare(pickle.load(file))
        get_ready = pickle.load(file)
    with socket.socket(fileno=requests_fd) as requests:
        get_ready(lambda: serve(requests))
    warm.close()
    atexit._run_exitfuncs()
    os._exit(0)  # without taking modules down: Triton lists what cells of a lab still hold then


def serve(requests: socket.socket) -> None:
    """Forks a child for each request, until nobody can send one any more."""
    import torch

    torch.set_num_threads(1)
    children: dict[int, int] = {}  # a descriptor that tells its end -> process id
    gc.freeze()  # looking at these objects would copy the memory that children share
    gc.enable()
    while True:
        ahead.make()
        ready = readable([requests.fileno(), *children, *ahead.unready()])
        for fd in ready & children.keys():
            os.waitpid(children.pop(fd), 0)
            os.close(fd)
        for fd in ready & ahead.unready().keys():
            ahead.unready()[fd].step(time.monotonic())
        if requests.fileno() not in ready:
            continue
        fds = socket.recv_fds(requests, 16, 2)[1]
        if not fds:
            break
        pid = os.fork()
        if pid == 0:
            for fd in (requests.detach(), *children):
                os.close(fd)
            child(*fds)
        for fd in fds:
            os.close(fd)
        ahead.hand_on()
        children[os.pidfd_open(pid)] = pid
    end(children)


def readable(fds: list[int]) -> set[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll()}


def end(children: dict[int, int]) -> None:
    """Ends children in the middle of a job, and waits until they have cleared away."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for fd in children:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
        until = time.monotonic() + STOP_SECONDS
        while children and time.monotonic() < until:
            for fd in [fd for fd in children if os.waitpid(children[fd], os.WNOHANG)[0]]:
                os.close(fd)
                del children[fd]
            time.sleep(0.002)


# ---- in a child ---------------------------------------------------------------------------------


def child(job_fd: int, answer_fd: int) -> None:
    """Does one job and ends; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, stop)
        die_with(os.getppid())
        own_memory.bound()
        later.wait_with()
        with os.fdopen(answer_fd, "wb") as pipe:
            pipe.write(HEADER.pack(os.getpid()))
            pipe.flush()
            kind, data = done(job_fd)
            pipe.write(KIND.pack(kind, len(data)) + data)
        code = 0
    finally:
        try:
            later.now()
        finally:
            os._exit(code)


def done(job_fd: int) -> tuple[bytes, bytes]:
    try:
        with os.fdopen(job_fd, "rb") as file:
            file.seek(0)
            job, item = pickle.load(file)
        return ANSWER, job(item)
    except Exception as fault:
        try:
            return FAULT, pickle.dumps(fault)
        except Exception:
            return FAULT, pickle.dumps(RuntimeError(f"{type(fault).__name__}: {fault}"))


def stop(*_: object) -> None:
    """A job ends as by Ctrl-C: through its `finally`, so that its sandbox and limits go too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def die_with(parent: int) -> None:
    """The kernel sends SIGTERM when the parent ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew of the wish
        os._exit(1)


def at_once(serve: Callable[[], None]) -> None:
    """Nothing to do before the first job."""
    serve()
