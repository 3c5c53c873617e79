"""A student's pyproject.toml."""

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

FILES = Path(__file__).parent / "files"
SHARE = "share/efficient-llm-course"  # where a wheel puts what is no module
STUDENT = {  # of the course's dependencies, what efflib and the labs use
    "torch", "tokenizers", "safetensors", "numpy", "jupyterlab", "ipywidgets", "matplotlib",
    "pytest", "msgpack",
}  # fmt: skip


def pins(course_root: Path) -> list[str]:
    """The versions that the course was tested with; torch brings the Triton that it needs."""
    text = (course_root / "constraints.txt").read_text(encoding="utf-8")
    return re.findall(r"^(?!triton==)[\w.-]+==.+$", text, re.MULTILINE)


def pyproject(course_root: Path, out: Path, *, triton: bool) -> str:
    """The student's pyproject.toml: of the course's own, what efflib needs, and uv's settings."""
    project = tomllib.loads((course_root / "pyproject.toml").read_text(encoding="utf-8"))
    names = STUDENT | ({"triton"} if triton else set())
    wanted = [t for t in project["project"]["dependencies"] if Requirement(t).name in names]
    folders = sorted({p.parent for top in ("labs", "course") for p in (out / top).rglob("*.*")})
    data = {
        f"{SHARE}/{folder.relative_to(out).as_posix()}": [
            path.relative_to(out).as_posix() for path in sorted(folder.iterdir()) if path.is_file()
        ]
        for folder in folders
    }
    files = "\n".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in data.items() if v)
    return (FILES / "pyproject.in").read_text(encoding="utf-8").format(
        description=json.dumps(project["project"]["description"].partition(", and")[0]),
        python=json.dumps(project["project"]["requires-python"]),
        dependencies=json.dumps(wanted, indent=4),
        server=json.dumps(project["project"]["optional-dependencies"]["server"]),
        package_data=json.dumps(project["tool"]["setuptools"]["package-data"]["efflib"]),
        files=files,
        pins=json.dumps(pins(course_root), indent=4),
    )  # fmt: skip
