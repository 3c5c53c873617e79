"""Sets the course up and opens it, on Linux, macOS and Windows; needs Python 3.11 or later.

    python course.py setup     makes .venv beside this file and installs everything into it
    python course.py lab       opens the labs in JupyterLab; what follows `lab` goes to JupyterLab

`setup --gpu` takes the build of torch that the package index has for your system, which on Linux
brings NVIDIA's libraries (several GB). Without it, a build for CPUs is taken where it can be had.
"""

import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # for Linux and Windows; a Mac has one build
GPU_LOADS, GPU_TAKES = 2.8, 5.2  # GB of all packages with Linux's GPU build: loaded, on disk


def run(*arguments: str, **environment: str) -> int:
    """The exit code of a command with the Python of .venv."""
    command = [str(PYTHON), "-m", *arguments]
    return subprocess.run(command, cwd=HERE, env=os.environ | environment).returncode


def pip(*arguments: str) -> int:
    return run("pip", "install", "--disable-pip-version-check", *arguments)


def say(text: str) -> None:
    print(text, flush=True)  # before what pip says, also where a file takes both


def pinned(name: str) -> str:
    lines = (HERE / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def gpu_build_fits() -> bool:
    """Says what Linux's GPU build of torch needs, and whether the disk has it."""
    free = shutil.disk_usage(HERE).free / 1e9
    if free < GPU_TAKES + GPU_LOADS:  # pip keeps what it loads until it has installed all
        say(
            f"The GPU build of torch takes {GPU_TAKES} GB on disk, and {GPU_LOADS} GB more while it"
            f" is installed; {free:.1f} GB are free."
        )
        return False
    say(
        f"Taking the GPU build of torch: about {GPU_LOADS} GB to load, {GPU_TAKES} GB on disk"
        f" ({free:.0f} GB are free). Ctrl-C stops."
    )
    return True


def set_up(gpu: bool) -> int:
    if sys.version_info < (3, 11):
        say(f"Python {sys.version.split()[0]} is too old: the course needs 3.11 or later")
        return 1
    if not PYTHON.exists():
        try:
            venv.create(VENV, with_pip=True)
        except subprocess.CalledProcessError:  # Debian's Python comes in parts
            shutil.rmtree(VENV, ignore_errors=True)
            say("venv made no pip: on Debian and Ubuntu, first `sudo apt install python3-venv`")
            return 1
    if not gpu and sys.platform != "darwin":
        gpu = bool(pip("--retries", "0", "--index-url", CPU_INDEX, pinned("torch")))
        if gpu:
            say(f"\nNo build of torch from {CPU_INDEX}: the package index has another.")
    there = any(VENV.glob("lib/python*/site-packages/torch"))
    if gpu and not there and sys.platform == "linux" and not gpu_build_fits():
        return 1
    failed = pip("--constraint", "constraints.txt", "--editable", ".")
    say("Set-up failed, see above." if failed else "Done. Now: python course.py lab")
    return failed


def open_lab(arguments: list[str]) -> int:
    """JupyterLab with the notebook, or with the labs' folder if there are several."""
    notebooks = [path.relative_to(HERE).as_posix() for path in HERE.glob("labs/*/*.ipynb")]
    first = notebooks[0] if len(notebooks) == 1 else "labs"
    options = [f"--ServerApp.root_dir={HERE}", f"--LabApp.default_url=/lab/tree/{first}"]
    if getattr(os, "geteuid", lambda: 1)() == 0:  # as in many containers; Windows has no such user
        options.append("--allow-root")
    settings = [str(HERE / "course" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    paths = os.pathsep.join(filter(None, settings))
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for Jupyter, which asks and saves
    return run("jupyter", "lab", *options, *arguments, JUPYTER_CONFIG_PATH=paths)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["setup"] and set(arguments[1:]) <= {"--gpu"}:
        try:
            return set_up("--gpu" in arguments)
        except KeyboardInterrupt:
            say("Stopped. The same command goes on.")
            return 130
    if arguments[:1] == ["lab"] and PYTHON.exists():
        return open_lab(arguments[1:])
    say(__doc__ if arguments[:1] != ["lab"] else "First: python course.py setup")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
