"""A Jupyter server with formgrader over a class of three, one of whom attacks the page."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import nbcourse
from payloads import PAYLOADS

from autograder.nbgrader.release import release

SECONDS = 300  # until the server answers, on a busy machine
OWNED = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ANSWER = "\n\n".join([OWNED, *PAYLOADS, "[click](javascript:document.title='owned')"])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A Jupyter server in a course folder, as an instructor starts it."""

    def __init__(self, course, home):
        self.course, self.url = course, f"http://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        options = ["--no-browser", "--allow-root", "--IdentityProvider.token=", "--port", port]
        options += ["--ServerApp.disable_check_xsrf=True"]
        folders = {"JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home)}
        self.log = (home / "server.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options],
            cwd=course,
            env=os.environ | folders,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def wait(self):
        for _ in range(SECONDS):
            try:
                return self.api("status")
            except OSError:
                assert self.process.poll() is None, open(self.log.name).read()
                time.sleep(1)
        raise AssertionError(open(self.log.name).read())

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}/formgrader/{path}") as answer:
            return answer.read().decode()

    def api(self, path: str, body: dict | None = None, method: str = "GET"):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            f"{self.url}/formgrader/api/{path}", data=data, method=method
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def autograde(self, student: str) -> str:
        """Presses the button; returns nbgrader's log."""
        answer = self.api(f"submission/{nbcourse.LAB}/{student}/autograde", method="POST")
        assert answer["success"], answer
        return answer["log"]

    def notebook(self, student: str) -> dict:
        rows = self.api(f"submitted_notebooks/{nbcourse.LAB}/toy")
        return next(row for row in rows if row["student"] == student)


@contextmanager
def running(course, home):
    """The server over a released course, with what the three handed in."""
    nbcourse.make_course(course)
    shutil.copy(nbcourse.ROOT / "nbgrader_config.py", course)
    release(course)
    lab = nbcourse.load(course)
    nbcourse.submit(course, "ada", nbcourse.answered(lab, ex1=nbcourse.RIGHT["ex1"], w1=ANSWER))
    nbcourse.submit(course, "bob", b"<<<<<<< HEAD\n{}\n>>>>>>> main\n")
    nbcourse.submit(course, "cleo", nbcourse.right(lab), "toy (1).ipynb")
    server = Server(course, home)
    try:
        server.wait()
        yield server
    finally:
        server.process.terminate()
        server.process.wait()
        server.log.close()
