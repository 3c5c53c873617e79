"""A bundle as a student has it: it works in an empty folder, and gives nothing away.

`make test-setup` sets one up from the network; here the packages that are
installed already serve.
"""

import ast
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from autograder import cli
from autograder.bundle.chapters import dead_links
from autograder.bundle.pack import NO_COMMIT, last_commit
from autograder.bundle.parts import read_sources
from autograder.bundle.project import STUDENT
from autograder.bundle.tree import chosen_labs, hidden_parts, uses_triton, write_tree
from autograder.bundle.withheld import owners
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import read_percent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LAB = "lab01_quantization"
LABS = lab_names(ROOT)
SECRET_LINE = 44  # characters: shorter lines of code are often the same by chance


def bundled(folder: Path, *arguments: str) -> Path:
    """The unpacked zip of `autograder bundle`."""
    out = folder / "out"
    assert cli.run(["bundle", *arguments, "--out", str(out), "--course", str(ROOT)]) == 0
    with zipfile.ZipFile(next(out.glob("*.zip"))) as archive:
        archive.extractall(folder / "unpacked")
    [root] = (folder / "unpacked").iterdir()
    return root


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return bundled(tmp_path_factory.mktemp("one"), LAB)


def unpacked(out: Path, *released: str) -> Path:
    """The folder of a bundle with all labs, as it is before it is packed."""
    labs = chosen_labs(ROOT, (), released)
    write_tree(ROOT, labs, hidden_parts(ROOT, released), out)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return unpacked(tmp_path_factory.mktemp("whole"))


def student_python(root: Path, code: str, folder: str = ".") -> subprocess.CompletedProcess:
    """Runs code as in the bundle's own environment: efflib is the bundle's, and no autograder."""
    lines = f"import sys; sys.modules['autograder'] = None\n{code}"
    return subprocess.run(
        [sys.executable, "-c", lines],
        cwd=root / folder,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


# ---- what is in it ------------------------------------------------------------------------------


def test_it_holds_what_students_need_and_nothing_else(one, whole):
    top = {"LICENSE", "README.md", "constraints.txt", "course", "course.py", "efflib", "labs"}
    for root, labs in ((one, [LAB]), (whole, LABS)):
        assert {path.name for path in root.iterdir()} == top | {
            "pyproject.toml",
            ".binder",
            ".devcontainer",
        }
        assert sorted(path.name for path in (root / "labs").iterdir()) == labs
        assert {path.name for path in (root / "course").iterdir()} == {
            "chapters", "figures", "jupyter",
            "glossary.md", "syllabus.md", "questions.md", "withheld.md",
        }  # fmt: skip
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
        bad = re.compile(r"solution|suite|triad|hidden|manifest|mutant|nbgrader|autograder|\.pyc?c")
        assert not [name for name in names if bad.search(name)]
    for path in (ROOT / "labs" / LAB).iterdir():
        assert (one / "labs" / LAB / path.name).read_bytes() == path.read_bytes()


def test_the_wheel_holds_the_same(one):
    with zipfile.ZipFile(next((one.parents[1] / "out").glob("*.whl"))) as wheel:
        held = {name: wheel.read(name) for name in wheel.namelist()}
    share = re.compile(r"^[^/]+\.data/data/share/efficient-llm-course/")
    got = {share.sub("", name) for name in held if ".dist-info/" not in name}
    files = (p for top in ("efflib", "labs", "course") for p in (one / top).rglob("*"))
    assert got == {path.relative_to(one).as_posix() for path in files if path.is_file()}
    for name, content in held.items():
        if ".dist-info/" not in name:
            assert (one / share.sub("", name)).read_bytes() == content


def test_the_same_course_gives_the_same_bytes(one, tmp_path):
    assert cli.run(["bundle", LAB, "--out", str(tmp_path), "--course", str(ROOT)]) == 0
    for path in (one.parents[1] / "out").iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_files_have_the_date_of_the_last_commit(one, tmp_path):
    [archive] = (one.parents[1] / "out").glob("*.zip")
    dates = {about.date_time[:5] for about in zipfile.ZipFile(archive).infolist()}
    assert dates == {time.gmtime(last_commit(ROOT))[:5]}, "to the minute: a zip has even seconds"
    assert last_commit(tmp_path) == NO_COMMIT, "a folder without a repository"


def test_what_is_withheld_stands_in_a_page_of_its_own(one, tmp_path):
    page = (one / "course" / "withheld.md").read_text()
    assert set(re.findall(r"^- `(.+)`$", page, re.MULTILINE)) == set(WITHHELD)
    assert set(re.findall(r"^After (.+):$", page, re.MULTILINE)) == {
        ", ".join(labs) for labs in WITHHELD.values()
    }
    readme = (one / "README.md").read_text()
    assert "(course/withheld.md)" in readme and "`efflib.quantization" not in readme
    assert max(map(len, readme.splitlines())) <= 110
    unpacked(tmp_path, *LABS)
    assert "All of `efflib` is here." in (tmp_path / "README.md").read_text()
    assert not (tmp_path / "course" / "withheld.md").exists()


def test_no_link_of_the_chapters_is_dead(whole):
    assert dead_links(whole) == []


# ---- what it gives away -------------------------------------------------------------------------


def long_lines(text: str) -> set[str]:
    """Without imports: they tell nothing, and efflib's are the same."""
    lines = {line for line in map(str.strip, text.splitlines()) if len(line) >= SECRET_LINE}
    return {line for line in lines if not line.startswith(("from ", "import "))}


def answers(lab: str) -> str:
    """What stands between the marks of the lab's solution cells."""
    [source] = [p for p in (ROOT / "solutions" / lab).glob("*.py") if p.stem != "test_public"]
    return "\n".join(
        re.findall(r"### BEGIN SOLUTION(.*?)### END SOLUTION", source.read_text(), re.S)
    )


def secrets() -> set[str]:
    """Long lines of solutions, hidden tests, triads and answers that are in no released file."""
    suites = ROOT / "autograder" / "suites"
    texts = [p.read_text() for p in suites.rglob("*") if p.suffix in (".py", ".toml")]
    edits = "\n".join(p.read_text() for p in suites.rglob("*.diff"))
    texts += [re.sub("^[ +-]", "", edits, flags=re.M)]
    texts += [p.read_text() for p in (ROOT / "solutions").glob("*/written.md")]
    found = long_lines("\n".join([*texts, *map(answers, LABS)]))
    released = [p.read_text() for p in (ROOT / "labs").rglob("*") if p.suffix in (".py", ".toml")]
    for path in (ROOT / "labs").rglob("*.ipynb"):
        released += ["".join(c["source"]) for c in json.loads(path.read_text())["cells"]]
    return found - long_lines("\n".join(released))


def leaked(root: Path) -> dict[str, set[str]]:
    known, found = secrets(), {}
    assert len(known) > 3000
    for path in (p for p in root.rglob("*") if p.suffix in (".py", ".md", ".toml", ".ipynb")):
        text = path.read_text()
        if path.suffix == ".ipynb":
            text = "\n".join("".join(c["source"]) for c in json.loads(text)["cells"])
        lines = long_lines(text) & known
        if lines:
            found[path.relative_to(root).as_posix()] = lines
    return found


def test_no_line_of_solutions_hidden_tests_and_triads_is_in_it(one):
    assert leaked(one) == {}


def test_no_line_of_the_sample_answers_is_in_it(whole):
    samples = "\n".join(p.read_text() for p in (ROOT / "solutions").glob("*/written.md"))
    known = long_lines(samples)
    assert len(known) > 300
    for path in (p for p in whole.rglob("*") if p.suffix in (".py", ".md", ".toml", ".ipynb")):
        assert not [line for line in known if line in path.read_text()], path


WITHHELD = owners(ROOT, read_sources(ROOT / "efflib"))
EACH = """
import importlib, sys
sys.modules["triton"] = None  # as where it has no build
for name in {names}:
    try:
        getattr(importlib.import_module(name), "anything", None)
        print("here", name)
    except ImportError as error:
        print(error)
"""


def test_a_withheld_module_says_who_builds_it_and_all_others_can_be_imported(one):
    sources = read_sources(one / "efflib")
    names = sorted(m for m in sources if not m.endswith("__main__") and ".train" not in m)
    told = student_python(one, EACH.format(names=names))
    lines = dict(zip(names, told.stdout.splitlines(), strict=True))
    needs_triton = [m for m in names if re.match(r"efflib\.(kernels|meter)", m)]
    for name in names:
        if name in needs_triton and lines[name] != f"here {name}":
            assert "triton" in lines[name]
        elif name in WITHHELD:
            labs = ", ".join(WITHHELD[name])
            assert f"{name}.anything is not in what you have: {labs} " in lines[name]
        else:
            assert lines[name] == f"here {name}"


def test_a_stub_that_is_run_says_the_same(one):
    ran = subprocess.run(
        [sys.executable, "-m", "efflib.chat"], cwd=one, capture_output=True, text=True
    )
    assert ran.returncode == 1 and "not in what you have: lab00_roofline, " in ran.stderr


def code_of(path: Path) -> str:
    """All imports of a file or of a notebook's cells."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join(map(ast.unparse, nodes))


def test_all_that_the_labs_import_is_there(whole):
    files = [*whole.glob("labs/*/*.ipynb"), *whole.glob("labs/*/*.py")]
    assert len(files) == 2 * len(LABS)
    ran = student_python(whole, "\n".join(map(code_of, files)))
    assert ran.returncode == 0, ran.stderr


def test_nothing_is_kept_for_the_labs_and_with_gives_it_out(tmp_path, whole):
    lab = "lab06_paged_attention"
    assert "class PagedSequences" not in (whole / "efflib/serving/paged.py").read_text()
    given = unpacked(tmp_path, lab)
    for module, labs in WITHHELD.items():
        path = module.replace(".", "/") + ".py"
        same = (given / path).read_bytes() == (ROOT / path).read_bytes()
        assert same == (labs == (lab,)), module


def test_unknown_labs_are_told(tmp_path, capsys):
    for arguments in (["lab99"], ["--with", "lab99"]):
        out = ["--out", str(tmp_path), "--course", str(ROOT)]
        assert cli.run(["bundle", *arguments, *out]) == 2
        assert "there is no lab 'lab99'" in capsys.readouterr().err


# ---- it works -----------------------------------------------------------------------------------

RUN = """
import efflib, pathlib
assert pathlib.Path(efflib.__file__).is_relative_to({root!r})
from efflib import zoo
from efflib.lab import CheckFailed
exec({first!r})
exec({stub!r})
try:
    lab.check("ex1")
except CheckFailed as error:
    print("CheckFailed", error)
exec({solved!r})
lab.check("ex1")
lab.hint("ex1")
print(sum(p.numel() for p in zoo.load("draft").parameters()), zoo.load_tokenizer().get_vocab_size())
zoo.load("zero_sink")
"""


def test_a_lab_runs_and_its_checks_tell_right_from_missing(one):
    """From a folder elsewhere, with the bundle's efflib and without the repository."""
    source = read_percent(ROOT / "solutions" / LAB / "quantization.py")
    solved = next(c.source for c in source.cells if c.metadata.get("solution") == "ex1")
    cells = json.loads((one / "labs" / LAB / "quantization.ipynb").read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    first = next(text for text in code if "Lab(" in text)
    stub = next(text for text in code if 'NotImplementedError("Exercise 1' in text)
    program = RUN.format(root=str(one), first=first, stub=stub, solved=solved)
    ran = student_python(one, program, f"labs/{LAB}")
    assert ran.returncode == 0, ran.stderr
    assert "[ok]" in ran.stdout and "[fail]" not in ran.stdout
    assert "CheckFailed exercise 1 is not done yet" in ran.stdout
    assert re.search(r"(\d+) of \1 public tests", ran.stdout) and "Hint 1 of" in ran.stdout


def test_an_installed_wheel_finds_the_files_of_a_lab(one, tmp_path, monkeypatch):
    from efflib.lab import exercises

    monkeypatch.setattr(exercises, "REPOSITORY", tmp_path)
    monkeypatch.setattr(exercises, "SHARED", one)
    monkeypatch.chdir(tmp_path)
    assert exercises.find_folder(LAB) == (one / "labs" / LAB).resolve()


def test_its_packages_are_those_that_efflib_and_the_labs_import(one):
    project = tomllib.loads((one / "pyproject.toml").read_text())
    asked = {Requirement(text).name for text in project["project"]["dependencies"]}
    assert asked == STUDENT
    files = [*(ROOT / "efflib").rglob("*.py"), *(ROOT / "labs").rglob("*.ipynb")]
    names = re.findall(r"^\s*(?:import|from) (\w+)", "\n".join(map(code_of, files)), re.MULTILINE)
    asked_for = {"transformers"}  # zoo.load("owner/name") and own_model say so
    asked_for |= {"huggingface_hub", "tqdm"}  # which come with it
    server = set(project["project"]["optional-dependencies"]["server"])
    assert server == {"starlette", "uvicorn", "msgspec"}
    asked_for |= server  # python -m efflib.engine says so
    outside = set(names) - sys.stdlib_module_names - {"efflib", "IPython"} - asked_for
    assert outside <= STUDENT | {"triton"}, "add it to STUDENT"


def test_triton_is_asked_for_where_a_lab_runs_kernels(tmp_path):
    lab = replace(load_lab(LAB, ROOT), release_dir=tmp_path, notebook="x")
    (tmp_path / "test_public.py").write_text("")
    for name, wanted in (("efflib.meter", True), ("efflib.zoo", False)):
        cell = {"cell_type": "code", "source": [f"from {name} import anything"]}
        (tmp_path / "x.ipynb").write_text(json.dumps({"cells": [cell]}))
        assert uses_triton([lab]) == wanted


def test_set_up_needs_no_more_than_two_commands(one):
    """They are run from the network by tests/bundle_setup; here: what they would run is there."""
    program = (one / "course.py").read_text()
    assert {n for n in re.findall(r"^(?:import|from) (\w+)", program, re.M)} <= set(
        sys.stdlib_module_names
    )
    pins = (one / "constraints.txt").read_text()
    assert "\ntorch==" in pins and "\ntriton==" not in pins
    asked = subprocess.run([sys.executable, "course.py", "lab"], cwd=one, capture_output=True)
    assert asked.returncode == 2 and b"First: python course.py setup" in asked.stdout
