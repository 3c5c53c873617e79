"""Sets the course up and opens it, on Linux, macOS and Windows; needs Python 3.11 or later.

    python course.py setup     makes .venv beside this file and installs everything into it
    python course.py lab       opens the labs in JupyterLab

`setup --gpu` takes the build of torch that the package index has for your system, which on Linux
brings NVIDIA's libraries (several GB). Without it, a build for CPUs is taken.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # for Linux and Windows; a Mac has one build


def run(*arguments: str) -> int:
    """The exit code of a command with the Python of .venv."""
    return subprocess.run([str(PYTHON), "-m", *arguments], cwd=HERE).returncode


def pip(*arguments: str) -> int:
    return run("pip", "install", "--disable-pip-version-check", *arguments)


def pinned(name: str) -> str:
    lines = (HERE / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def set_up(gpu: bool) -> int:
    if sys.version_info < (3, 11):
        print(f"Python {sys.version.split()[0]} is too old: the course needs 3.11 or later")
        return 1
    if not PYTHON.exists():
        try:
            venv.create(VENV, with_pip=True)
        except subprocess.CalledProcessError:  # Debian's Python comes in parts
            shutil.rmtree(VENV, ignore_errors=True)
            print("venv made no pip: on Debian and Ubuntu, first `sudo apt install python3-venv`")
            return 1
    if not gpu and sys.platform != "darwin" and pip("--index-url", CPU_INDEX, pinned("torch")):
        print(f"no build of torch from {CPU_INDEX}: taking the one of the package index")
    failed = pip("--constraint", "constraints.txt", "--editable", ".")
    print("Set-up failed, see above." if failed else "Done. Now: python course.py lab")
    return failed


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["setup"] and set(arguments[1:]) <= {"--gpu"}:
        return set_up("--gpu" in arguments)
    if arguments == ["lab"] and PYTHON.exists():
        return run("jupyter", "lab", f"--ServerApp.root_dir={HERE}")
    print(__doc__ if arguments != ["lab"] else "First: python course.py setup")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
