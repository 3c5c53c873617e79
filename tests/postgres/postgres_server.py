"""A PostgreSQL server of one's own: on a socket in a temporary folder, gone at the end.

The programs are those of Debian's package `postgresql`.  PostgreSQL refuses to run as root, so
there it runs as the user that the package has made, or as nobody.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

USER = "teacher"  # of the databases
START_SECONDS = 120.0  # for the server to answer, however slow the machine is


def program(name: str) -> str:
    """Where initdb or postgres is; Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"{name} is missing: apt-get install postgresql"
    return path


def as_ordinary_user(folder: Path) -> list[str]:
    """What to put before a command; the folder is then that user's."""
    if os.geteuid():
        return []
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


@contextlib.contextmanager
def server() -> Iterator["Server"]:
    with tempfile.TemporaryDirectory(prefix="postgres-", dir="/tmp") as name:  # a short path
        folder = Path(name)
        before = as_ordinary_user(folder)
        made = [program("initdb"), "-D", f"{folder}/data", "-U", USER, "-A", "trust", "-E", "UTF8"]
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL}
        subprocess.run([*before, *made, "--no-sync", "--locale=C.UTF-8"], check=True, **quiet)
        with (folder / "log.txt").open("wb") as log:
            settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
            command = [program("postgres"), "-D", f"{folder}/data", *settings, "-c", "fsync=off"]
            process = subprocess.Popen([*before, *command], cwd=folder, stdout=log, stderr=log)
        running = Server(folder, process)
        try:
            running.wait()
            yield running
        finally:
            running.stop()


class Server:
    def __init__(self, folder: Path, process: subprocess.Popen) -> None:
        self._folder, self._process, self._count = folder, process, 0

    def wait(self) -> None:
        import psycopg

        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return psycopg.connect(self._address("postgres")).close()
            except psycopg.OperationalError:
                said = (self._folder / "log.txt").read_text()
                assert self._process.poll() is None and time.monotonic() < end, said
                time.sleep(0.05)

    def _address(self, database: str) -> str:
        return f"host={self._folder} user={USER} dbname={database}"

    def new_database(self) -> str:
        """The URL of an empty one."""
        import psycopg

        self._count += 1
        name = f"gradebook{self._count}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://{USER}:secret@/{name}?host={self._folder}"

    def stop(self) -> None:
        """At once, also for those who are connected."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(START_SECONDS)
