"""No answer stands in what students get, under whatever name: syntax trees are compared."""

import ast
import json
import re
from pathlib import Path

import pytest
from alike import LEAST, functions, pieces, share, words

from autograder.bundle.parts import read_sources
from autograder.bundle.tree import chosen_labs, hidden_parts, write_tree
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import read_percent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
# What is alike by chance has up to 0.36 of an answer's pieces (a mask, a softmax, a guard and an
# update); a copy with other names has all of them, the reference's own way to write it 0.4 to 1
MOST = 0.39
FENCE = re.compile(r"```(?:python|py)\n(.*?)```", re.DOTALL)


def read(path: Path) -> list[tuple[str, str]]:
    """(where, code) of all the code in a file of the bundle; texts show code between fences."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [(path.name, text)]
    if path.suffix == ".md":
        return [(path.name, code) for code in FENCE.findall(text)]
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    fenced = [
        code for kind, source in cells if kind == "markdown" for code in FENCE.findall(source)
    ]
    return [(path.name, code) for code in fenced + [s for kind, s in cells if kind == "code"]]


def bodies(where: str, code: str):
    """(name, pieces) of all functions of some code, and of the code itself as one."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # an extract with dots
        return
    for name, function in functions(code):
        yield f"{where}: {name}", pieces(words(function))
    if tree.body:
        whole = ast.parse("def cell():\n    pass").body[0]
        whole.body = tree.body
        yield where, pieces(words(whole))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """(where, pieces) of all code in a bundle of all labs, none of them released."""
    out = tmp_path_factory.mktemp("bundle")
    labs = chosen_labs(ROOT, (), ())
    write_tree(ROOT, labs, hidden_parts(ROOT, ()), out)
    files = [path for path in out.rglob("*") if path.suffix in (".py", ".md", ".ipynb")]
    return [body for path in files for code in read(path) for body in bodies(*code)]


def answers(lab: str) -> dict[str, set]:
    """The functions of a lab's solution that are long enough to be told apart."""
    [path] = [p for p in (ROOT / "solutions" / lab).glob("*.py") if p.stem != "test_public"]
    cells = [cell for cell in read_percent(path).cells if cell.metadata.get("solution")]
    found = {}
    for cell in cells:
        for name, function in functions(cell.source):
            line = words(function)
            if len(line) >= LEAST:
                found[f"{cell.metadata['solution']} {name}"] = pieces(line)
    return found


@pytest.mark.parametrize("lab", lab_names(ROOT))
def test_no_solution_is_in_the_bundle_under_any_name(lab, given):
    own = answers(lab)
    assert own
    found = [
        f"{name}: {share(answer, other):.2f} of it in {where}"
        for name, answer in own.items()
        for where, other in given
        if share(answer, other) > MOST
    ]
    assert not found, "\n".join(found)


def test_what_is_kept_of_withheld_modules_is_no_exercise():
    """An answer written in another way is one: modules that need it are withheld as well."""
    labs = [load_lab(name, ROOT) for name in lab_names(ROOT)]
    asked = {name for lab in labs for one in lab.exercises.values() for name in one.functions}
    assert len(asked) > len(labs)
    hidden = hidden_parts(ROOT, ())
    assert hidden.stubs
    kept = {f"{module}: {name}" for module, names in hidden.parts.items() for name in names & asked}
    assert not kept


# One name and a parameter in common by chance: a hook that a context installs, curves of figures
BY_CHANCE = {"efflib.models.pages: attend", "efflib.models.ragged: fit"}
BY_CHANCE |= {"efflib.plots.channels: sweep", "efflib.plots.repairs: sweep"}


def signatures(code: str) -> dict[str, set[str]]:
    """{function: its parameters} of a piece of code."""
    found: dict[str, set[str]] = {}
    for _, node in functions(code):
        every = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        found.setdefault(node.name, set()).update(arg.arg for arg in every)
    return found


def called_alike(given: dict[str, str], asked: dict[str, list[set[str]]]) -> set[str]:
    """Each module: function where a module has one that is called as an exercise's."""
    return {
        f"{module}: {name}"
        for module, code in given.items()
        for name, parameters in signatures(code).items()
        if any(parameters & other for other in asked.get(name, ()))
    }


def test_no_module_that_is_there_has_a_function_that_is_called_as_an_exercise_s():
    """Trees are alike where idioms are: the same job in other idioms has 0.2 of the pieces, and a
    wrapper makes an answer of it.  It mostly has the same name, and takes the same things."""
    asked: dict[str, list[set[str]]] = {}
    for lab in lab_names(ROOT):
        names = {name for one in load_lab(lab, ROOT).exercises.values() for name in one.functions}
        [path] = [p for p in (ROOT / "solutions" / lab).glob("*.py") if p.stem != "test_public"]
        for cell in read_percent(path).cells:
            if cell.metadata.get("solution"):
                for name, parameters in signatures(cell.source).items():
                    if name in names:
                        asked.setdefault(name, []).append(parameters)
    sources, hidden = read_sources(ROOT / "efflib"), hidden_parts(ROOT, ())
    given = {module: text for module, text in sources.items() if module not in hidden.withheld}
    assert called_alike(given, asked) == BY_CHANCE
    lent = {"efflib.hessian": sources["efflib.hessian"]}  # which stood in bundles once
    assert called_alike(lent, asked) == {
        "efflib.hessian: damped",
        "efflib.hessian: inverse_factor",
    }


PLAIN = '''
def keep(scores: list[float], n: int) -> list[int]:
    """The n largest."""
    order = sorted(range(len(scores)), key=lambda i: scores[i], reverse=True)
    kept = order[:n]
    return sorted(kept)
'''
RENAMED = """
class Other:
    def best(self, x, count):
        ranked = sorted(range(len(x)), key=lambda j: x[j], reverse=True)
        chosen = ranked[:count]
        return sorted(chosen)
"""
OTHER = """
def keep(scores, n):
    threshold = torch.tensor(scores).topk(n).values[-1]
    return [i for i, score in enumerate(scores) if score >= threshold][:n]
"""


def test_other_names_do_not_hide_a_copy_and_another_way_is_none():
    plain, renamed, other = (dict(bodies("", code)) for code in (PLAIN, RENAMED, OTHER))
    assert share(plain[": keep"], renamed[": Other.best"]) == 1
    assert share(plain[": keep"], renamed[""]) == 1  # also where it stands in a cell
    assert share(plain[": keep"], other[": keep"]) < 0.2
