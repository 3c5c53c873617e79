"""Every lab as students meet it: the solved notebook runs, the release gives nothing away."""

import ast
import os
import re
import tomllib
from pathlib import Path

import nbclient
import nbformat
import pytest

from autograder.bundle.tree import chosen_labs, hidden_parts, write_tree
from autograder.labs.source import build_source, lab_sources

ROOT = Path(__file__).parents[2]
LABS = lab_sources(ROOT)
DEMO_LINES = 14
OPEN_LINES = 25  # of any other cell that students do not fill in
HANG_SECONDS = 600  # ends a cell that hangs; how long cells take is measured, not tested
# In the notebook's kernel, before its first cell: perplexities are those of every fourth piece of
# the text, and trainings take every fourth batch.  `make test-nightly` has WHOLE_TEXT=1.
LESS_TEXT = """
def less_text():
    from efflib.finetuning import training
    from efflib.zoo import evaluation

    whole, train = evaluation.held_out_segments, training.finetune
    evaluation.held_out_segments = lambda *args, **kwargs: whole(*args, **kwargs)[::4]

    def less(model, batches, *args, scored=None, **kwargs):
        own = {} if scored is None else {"scored": scored[::4]}
        return train(model, batches[::4], *args, **own, **kwargs)

    training.finetune = less


less_text()
del less_text
"""


def test_there_is_a_lab():
    assert "lab01_quantization" in LABS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """What students get, with no lab released: experiments run on the notebook's own functions."""
    out = tmp_path_factory.mktemp("bundle")
    write_tree(ROOT, chosen_labs(ROOT, (), ()), hidden_parts(ROOT, ()), out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("lab", LABS)
def test_the_solved_notebook_runs_headless_in_the_bundle(lab, bundle, tmp_path, monkeypatch):
    solved = build_source(ROOT, lab, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(bundle))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    if not os.environ.get("WHOLE_TEXT"):
        (startup / "less_text.py").write_text(LESS_TEXT)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(solved, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=HANG_SECONDS, resources={"metadata": {"path": solved.parent}}
    )
    client.execute()  # raises at the first cell that fails, checks included
    ran = [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]
    assert all(c.execution_count for c in ran)


@pytest.mark.parametrize("lab", LABS)
def test_the_release_holds_no_solution(lab):
    text = "".join(p.read_text() for p in (ROOT / "labs" / lab).glob("*") if p.is_file())
    assert "BEGIN SOLUTION" not in text
    notebook = nbformat.read(next((ROOT / "labs" / lab).glob("*.ipynb")), as_version=4)
    stubs = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution")]
    code = [c for c in stubs if c.cell_type == "code"]
    assert code and all("raise NotImplementedError" in c.source for c in code)
    assert all(not c.get("outputs") for c in notebook.cells)


@pytest.mark.parametrize("lab", LABS)
def test_an_experiment_shows_the_experiment(lab):
    """Cells that are open show few lines; help holds no pseudocode; no linter's words."""
    notebook = nbformat.read(next((ROOT / "labs" / lab).glob("*.ipynb")), as_version=4)
    for cell in notebook.cells:
        assert "noqa" not in cell.source and "fmt: " not in cell.source
        assert "Pseudocode" not in cell.source
        if "demo" in cell.metadata.get("tags", []) and not cell.metadata.get("jupyter"):
            lines = [line.strip() for line in cell.source.splitlines()]
            code = [line for line in lines if line and not line.startswith("#")]
            assert len(code) <= DEMO_LINES, f"{cell.id}: {len(code)} lines of code"
        elif cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("solution"):
            folded = cell.metadata.get("jupyter", {}).get("source_hidden")
            assert folded or len(cell.source.splitlines()) <= OPEN_LINES, cell.id


@pytest.mark.parametrize("lab", LABS)
def test_what_grading_runs_imports_nothing_withheld(lab):
    """A cell that grading runs would fail there, and with it every exercise."""
    manifest = ROOT / "autograder" / "suites" / lab / "manifest.toml"
    withheld = tomllib.loads(manifest.read_text()).get("withhold", [])
    notebook = nbformat.read(next((ROOT / "labs" / lab).glob("*.ipynb")), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and "demo" not in cell.metadata.get("tags", []):
            for name in imported(cell.source):
                bad = [w for w in withheld if name == w or name.startswith(w + ".")]
                assert not bad, f"{cell.id} imports {name}, and {bad[0]} is withheld"


def imported(source: str) -> list[str]:
    """Names of the modules, and of what is taken from them, that this code imports."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("lab", LABS)
def test_every_picture_of_a_lab_is_beside_it(lab):
    notebook = nbformat.read(next((ROOT / "labs" / lab).glob("*.ipynb")), as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    pictures = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", text)
    assert pictures, "no opening picture"
    for words, name in pictures:
        assert len(words) > 20 and (ROOT / "labs" / lab / name).is_file()
