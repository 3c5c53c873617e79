"""Forks a worker for each sandbox off a process with torch imported, which runs no student code.

    grader, over a socket    one message for each sandbox, with three descriptors: the worker's two
                             pipes and a socket of the sandbox's own, `control`
    child, over control      "here", by which the grader learns its process id and puts it into a
                             cgroup; then "ready", or "fault" and why; at last "ended" and the
                             wait status of process 1
    grader, over control     "go" and the settings, as JSON; its end of the socket closed: the end

A sandbox is three processes: the child, which waits outside of the new namespaces; process 1 of
them; the worker.  Only the worker ever returns from here.
"""

import array
import json
import os
import select
import signal
import socket

import confine
import namespaces

MESSAGE_BYTES = 65_536
DESCRIPTORS = 3


def forked(requests_fd: int) -> tuple[list[int], dict]:
    """Serves the grader for ever; returns in workers: their pipes and their settings."""
    requests = socket.socket(fileno=requests_fd)
    namespaces.prctl(namespaces.SET_DUMPABLE, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries children that have ended
    while fds := received(requests):
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            return guarded(child, *fds)
        for fd in fds:
            os.close(fd)
    os._exit(0)


def received(requests: socket.socket) -> list[int]:
    """The descriptors of a request; none: the grader is gone."""
    _, extra, _, _ = requests.recvmsg(16, socket.CMSG_SPACE(DESCRIPTORS * 4))
    fds = array.array("i")
    for _, _, content in extra:
        fds.frombytes(content)
    return list(fds)


def guarded(function, *arguments):
    """function(*arguments), or the end of this process: no fault may lead back to the zygote."""
    try:
        return function(*arguments)
    except BaseException:
        os._exit(1)


def child(read_fd: int, write_fd: int, control_fd: int) -> tuple[list[int], dict]:
    """Waits outside of the namespaces for the end of what is in them."""
    namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)
    control = socket.socket(fileno=control_fd)
    control.send(b"here")
    said = control.recv(MESSAGE_BYTES)
    settings = json.loads(said.removeprefix(b"go "))
    try:
        namespaces.unshare()
    except OSError as fault:
        control.send(f"fault {fault}".encode())
        raise
    first = os.fork()
    if first == 0:
        return guarded(process_one, [read_fd, write_fd], control, settings)
    namespaces.give_up_rights()
    pidfd = os.pidfd_open(first)
    control_fd, pidfd = confine.keep_only(control.detach(), pidfd)
    watch = select.poll()
    for fd in (control_fd, pidfd):
        watch.register(fd, select.POLLIN)
    watch.poll()
    ended, status = os.waitpid(first, os.WNOHANG)
    if ended:
        os.write(control_fd, f"ended {status}".encode())
    else:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)  # returns when all that was in the namespace is gone
    os._exit(0)


def process_one(pipes: list[int], control: socket.socket, settings: dict) -> tuple[list, dict]:
    """Starts the worker, buries what others leave, and ends with the worker."""
    namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.setsid()
        namespaces.furnish(settings["writable"])
        namespaces.give_up_rights(bytes.fromhex(settings["filter"]))
    except OSError as fault:
        control.send(f"fault {fault}".encode())
        raise
    started = os.fork()
    if started == 0:
        namespaces.prctl(namespaces.SET_DUMPABLE, 1)
        control.send(b"ready")
        control.close()
        return pipes, settings
    control.detach()
    confine.keep_only()
    while True:
        ended, status = os.wait()
        if ended == started:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
