"""A real JupyterHub on this machine: a teacher, two students, an exchange, two environments.

Needs root, since it makes three system users, and what `make test-hub` installs below build/hub:
JupyterHub from PyPI in a virtual environment, configurable-http-proxy from npm.  The environments
of teacher and students have the course's wheel and the students' wheel; third-party packages are
those of this environment, and JupyterHub's of its own.
"""

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / "build" / "hub"  # by make test-hub
PROXY = INSTALLED / "node_modules" / ".bin" / "configurable-http-proxy"
PYTHON = "/usr/bin/python3.11"  # other users can start it: one below /root they cannot
TEACHER, ADA, EVE = "efl-teacher", "efl-ada", "efl-eve"
TOKEN = "of-the-test"
PATIENCE = 900  # seconds: ends a call that hangs
EXTENSIONS = {
    "student": ("assignment_list", "course_list", "validate_assignment"),
    "teacher": ("assignment_list", "course_list", "validate_assignment", "formgrader"),
}


class Classroom:
    """Users, environments and a running hub; `close` removes all of them."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hub-"))
        self.folder.chmod(0o755)
        self.exchange = self.folder / "exchange"
        self.exchange.mkdir()
        self.exchange.chmod(0o777)
        self.port = free_port()
        self.hub = None

    def home(self, user: str) -> Path:
        return self.folder / "home" / user

    def add_users(self) -> None:
        (self.folder / "home").mkdir()
        for user in (TEACHER, ADA, EVE):
            command = ["useradd", "--create-home", "--home-dir", str(self.home(user)), user]
            subprocess.run(command, check=True)
            self.home(user).chmod(0o700)

    def environment(self, name: str, wheel: Path) -> Path:
        """A virtual environment with this wheel of the course, and the extensions of its users."""
        env = self.folder / name
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(env)], check=True)
        site = env / "lib" / "python3.11" / "site-packages"
        pip = [sys.executable, "-m", "pip", "--python", str(env / "bin" / "python")]
        # constraints.txt pins soupsieve by Python's version, and this Python is another
        wanted = ["--constraint", str(ROOT / "constraints.txt"), str(wheel), "soupsieve"]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", *wanted], check=True)
        [hub_site] = (INSTALLED / "env").glob("lib/python*/site-packages")
        rest = [sysconfig.get_path("purelib"), str(hub_site)]
        (site / "zz_third_party.pth").write_text("\n".join(rest) + "\n")
        shared = Path(sysconfig.get_path("data")) / "share" / "jupyter"  # kernels, templates
        (env / "share" / "jupyter").symlink_to(shared)
        enabled = {f"nbgrader.server_extensions.{name}": True for name in EXTENSIONS[name]}
        enabled["jupyterlab"] = True
        config = env / "etc" / "jupyter" / "jupyter_server_config.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps({"ServerApp": {"jpserver_extensions": enabled}}))
        return env

    def write(self, user: str, path: Path, text: str) -> Path:
        """Writes a file of a user's; folders that this makes are the user's too."""
        entry, missing = pwd.getpwnam(user), []
        for folder in path.parents:
            if folder.exists():
                break
            missing.append(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for one in (path, *missing):
            os.chown(one, entry.pw_uid, entry.pw_gid)
        return path

    def python(self, user: str, *arguments: str) -> str:
        """Python as a user, in the environment and the home folder of the user."""
        env = self.folder / ("teacher" if user == TEACHER else "student")
        full = ["runuser", "-u", user, "--", "env", f"HOME={self.home(user)}", f"USER={user}",
                f"PATH={env / 'bin'}:/usr/bin:/bin", "OMP_NUM_THREADS=1",
                str(env / "bin" / "python"), *arguments]  # fmt: skip
        done = subprocess.run(full, cwd=self.home(user), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    # ---- the hub --------------------------------------------------------------------------------

    def start(self) -> None:
        text = (Path(__file__).parent / "hub_config.txt").read_text()
        values = {"port": self.port, "api": free_port(), "hub": free_port(), "proxy": PROXY,
                  "folder": self.folder, "teacher": TEACHER, "token": TOKEN}  # fmt: skip
        config = self.folder / "jupyterhub_config.py"
        config.write_text(text.format(**values))
        self.log = (self.folder / "hub.log").open("w")
        python = INSTALLED / "env" / "bin" / "python"
        self.hub = subprocess.Popen(
            [str(python), "-m", "jupyterhub", "-f", str(config)],
            cwd=self.folder, stdout=self.log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.wait(lambda: self.call("GET", "/hub/api/"))
        for user in (TEACHER, ADA, EVE):
            self.call("POST", f"/hub/api/users/{user}")
            self.call("POST", f"/hub/api/users/{user}/server")
            self.wait(lambda user=user: self.call("GET", f"/user/{user}/api/status"))

    def wait(self, work) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return work()
            except (OSError, ValueError):  # not there yet
                assert self.hub.poll() is None, (self.folder / "hub.log").read_text()[-4000:]
                if time.monotonic() > until:
                    raise
                time.sleep(1)

    def call(self, method: str, path: str, body: dict | None = None, /, **form: str):
        """What a button of the page sends: an HTTP request through the hub's proxy; its JSON."""
        data = json.dumps(body).encode() if body is not None else None
        data = urllib.parse.urlencode(form).encode() if form else data
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, method=method
        )
        request.add_header("Authorization", f"token {TOKEN}")
        if data is None and method == "POST":
            request.data = b""
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[-1000:]
            raise OSError(f"{method} {path}: {error.code} {said}") from None

    def button(self, user: str, action: str, course: str, lab: str) -> dict:
        """Fetch, Submit, Fetch Feedback in a student's Assignment List."""
        path = f"/user/{user}/assignments/{action}"
        told = self.call("POST", path, course_id=course, assignment_id=lab)
        assert told["success"], told
        return told

    def formgrader(self, path: str, method: str = "POST", body: dict | None = None):
        """A button of formgrader's in the teacher's server."""
        told = self.call(method, f"/user/{TEACHER}/formgrader/api/{path}", body)
        assert not (isinstance(told, dict) and told.get("success") is False), told
        return told

    def close(self) -> None:
        if self.hub is not None:
            for user in (TEACHER, ADA, EVE):
                with contextlib.suppress(OSError, ValueError):
                    self.call("DELETE", f"/hub/api/users/{user}/server")
            self.hub.terminate()
            self.hub.wait(timeout=60)
            self.log.close()
        for user in (TEACHER, ADA, EVE):
            subprocess.run(["userdel", user], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
