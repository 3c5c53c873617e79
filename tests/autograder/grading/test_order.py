"""Set-up, helpers, overwritten modules, slow cells: right solutions run wherever things stand."""

import json

import pytest
from toylab import RIGHT1, RIGHT2, SETUP, STUB1, answered, cell, release

from autograder.grading.definitions import assigned, bound, only_definitions
from autograder.grading.rebuild import MAX_COPIES, rebuild
from autograder.intake.notebook import parse_notebook


def parsed(nb):
    return parse_notebook(json.dumps(nb).encode())


def built(nb, released=None):
    return rebuild(parsed(nb), parsed(released or release()))


def edited(edit, **answers):
    nb = answered(**answers)
    edit(nb["cells"])
    return nb


def namespace(nb, released=None):
    """What the cells leave behind when they run one after the other, errors passed over."""
    space = {}
    for part in built(nb, released).cells:
        try:
            exec(part.source, space)
        except Exception:
            continue
    return space


# ---- set-up -------------------------------------------------------------------------------------


def test_set_up_below_the_solutions_runs_before_them_as_well():
    nb = edited(lambda c: c.append(c.pop(1)))
    result = built(nb)
    assert [c.source for c in result.cells] == [SETUP, RIGHT1, RIGHT2, SETUP]
    assert [c.kind for c in result.cells] == ["setup", "solution", "solution", "setup"]
    assert result.notes == (
        "Cell 8 is set-up for cell 2 and stands below it: it also ran before it.",
    )


def test_set_up_that_calls_a_solution_still_runs_behind_it():
    released = release()
    released["cells"].insert(3, cell("code", "two = scale([1.0], 2.0)", "two", "l"))
    nb = answered()
    nb["cells"].insert(3, cell("code", "two = scale([1.0], 2.0)", "two", "l"))
    nb["cells"].insert(1, nb["cells"].pop(6))  # exercise 2 to the top
    assert namespace(nb, released)["two"] == [2.0]


def test_damaged_set_up_costs_nothing():
    space = namespace(edited(lambda c: c[1].update(source="import math\nfrom nowhere import Lab(")))
    assert space["clip"]([3.0], 0.0, 1.0) == [1.0]


def test_a_cell_above_the_set_up_finds_the_imports():
    nb = edited(lambda c: c.insert(0, cell("code", "HALF = math.sqrt(0.25)")))
    assert namespace(nb)["HALF"] == 0.5
    assert built(nb).notes == ()


# ---- helpers in cells that do not run -----------------------------------------------------------

HELPED = "def scale(numbers, factor):\n    return helper(numbers, factor)"
HELPER = """\
import operator as op
launched = input("a call: not taken")
START = 2 * 0
def times(a, b):
    return op.mul(a, b) + START
def helper(numbers, factor):
    return [times(n, factor) for n in numbers]
def unused():
    pass
raise SystemExit"""


@pytest.mark.parametrize("where", [0, 2, 5, 8])
def test_a_helper_in_a_cell_tagged_demo_counts(where):
    nb = edited(lambda c: c.insert(where, cell("code", HELPER, tags=["demo"])), ex1=HELPED)
    result = built(nb)
    assert namespace(nb)["scale"]([1.0, 2.0], 3.0) == [3.0, 6.0]
    assert not any("input(" in c.source or "unused" in c.source for c in result.cells)
    assert (
        f"Cell {where + 1} was not run, but your solutions use `START`, `helper`, `op`, `times` "
        "from it." in result.notes
    )


@pytest.mark.parametrize("copied", [True, False])
def test_a_helper_in_a_changed_or_copied_demonstration_counts(copied):
    def edit(c):
        c[4].update(source=c[4]["source"] + "\n" + HELPER)
        if copied:
            c[4] |= {"id": "copy"}

    assert namespace(edited(edit, ex1=HELPED))["scale"]([1.0], 3.0) == [3.0]


def test_what_another_cell_defines_is_not_taken_from_a_demonstration():
    demo = cell("code", "def helper(*a): return 7", tags=["demo"])
    nb = edited(
        lambda c: c.extend([cell("code", HELPER[: HELPER.rindex("raise")]), demo]), ex1=HELPED
    )
    assert not any("return 7" in c.source for c in built(nb).cells)


# ---- modules that were overwritten --------------------------------------------------------------


@pytest.mark.parametrize(
    "scratch",
    ["math = 3", "for math in range(3): pass", "with open('/dev/null') as math: pass", "del math",
     "def f():\n    global math\n    math = None\nf()", "x = (math := 2)"],
)  # fmt: skip
@pytest.mark.parametrize("where", [2, 5, 8])
def test_a_module_that_a_scratch_cell_overwrites_is_set_back(scratch, where):
    nb = edited(lambda c: c.insert(where, cell("code", scratch)))
    assert namespace(nb)["clip"]([3.0, -7.0], 0.0, 1.0) == [1.0, 0.0]
    assert any(f"Cell {where + 1} overwrites `math`" in note for note in built(nb).notes)


def test_it_is_there_again_before_the_next_solution_is_defined():
    solution = "def clip(x, lo=math.inf, hi=math.inf):\n    return x"
    nb = edited(lambda c: c.insert(2, cell("code", "math = 3")), ex2=solution)
    assert "clip" in namespace(nb)


@pytest.mark.parametrize(
    "source, own",
    [
        ("math = 3", "def scale(numbers, factor):\n    return [math * n for n in numbers]"),
        ("class math:\n    def fsum(x): return 3", RIGHT1),
        ("import cmath as math", RIGHT1),
    ],
)
def test_a_name_that_is_used_as_what_it_became_stays(source, own):
    nb = edited(lambda c: c.insert(2, cell("code", source)), ex1=own, ex2=STUB1)
    assert built(nb).notes == () and [c.source for c in built(nb).cells][1] == source
    assert len(built(nb).cells) == 4


def test_a_variable_that_solutions_use_is_not_mistaken_for_the_module():
    made = "from types import SimpleNamespace\nmath = SimpleNamespace(half=0.5, fsum=sum)"
    uses = "def scale(numbers, factor):\n    return [math.half * n for n in numbers]"
    nb = edited(lambda c: c.insert(2, cell("code", made)), ex1=uses)
    assert namespace(nb)["scale"]([2.0], 3.0) == [1.0]


def test_a_solution_may_overwrite_what_it_likes():
    nb = answered(ex1="math = 3\n" + RIGHT1)
    assert [c.source for c in built(nb).cells] == [SETUP, "math = 3\n" + RIGHT1, RIGHT2]


# ---- what a cell is, and what of it can be saved ------------------------------------------------


def test_every_cell_says_what_it_is():
    nb = edited(lambda c: c.insert(2, cell("code", "x = 1")), ex1=STUB1)
    nb["cells"].append(cell("code", RIGHT1))
    kinds = {c.label: c.kind for c in built(nb).cells}
    assert kinds == {
        "cell 2, setup": "setup",
        "cell 3": "own",
        "cell 7, ex2": "solution",
        "cell 10": "solution",
    }


def test_only_the_last_copies_of_a_solution_have_its_time():
    copies = [cell("code", f"{RIGHT1}\nx = {i}", "ex1", "s", cell_id=f"c{i}") for i in range(9)]
    kinds = [c.kind for c in built(edited(lambda c: c.extend(copies))).cells]
    assert kinds.count("solution") == MAX_COPIES + 1
    assert kinds[-MAX_COPIES:] == ["solution"] * MAX_COPIES


def test_of_a_cell_that_is_stopped_the_definitions_are_known():
    slow = "losses = train()\ndef helper():\n    return 1"
    nb = edited(lambda c: c.insert(2, cell("code", slow)))
    saved = {c.label: c.definitions for c in built(nb).cells}
    assert saved == {
        "cell 2, setup": ((1, "import math"), (2, "from efflib.lab import Lab")),
        "cell 3": ((2, "def helper():\n    return 1"),),
        "cell 4, ex1": (),
        "cell 7, ex2": (),
    }


def test_a_definition_begins_with_its_decorators():
    nb = edited(lambda c: c.insert(2, cell("code", "train()\n@known\n\n@other\ndef f(): pass")))
    [[(line, _)]] = [c.definitions for c in built(nb).cells if c.label == "cell 3"]
    assert line == 2


def test_constants_keep_what_they_are_where_definitions_run_again():
    slow = "n = 1\nm = [n]\nn = train()\ndef f():\n    return n"
    nb = edited(lambda c: c.insert(2, cell("code", slow)))
    [parts] = [c.definitions for c in built(nb).cells if c.label == "cell 3"]
    text = "\n".join(part for _, part in parts)
    namespace = {"n": 7}
    exec(text, namespace)
    assert namespace["f"]() == 7 and namespace["m"] == [7]
    exec(text, later := {})
    assert later["f"]() == 1


def test_names_are_read_without_running():
    source = "a = b, c = 1, 2\nd += 1\nimport e.f as g, h.i\nclass J: k = 1\nl = lambda: 0"
    assert assigned(source) == {"a", "b", "c", "d"}
    assert bound(source) == {"a", "b", "c", "d", "g", "h", "J", "l"}
    assert bound("def (") == set() and only_definitions("def (") == ""
    assert only_definitions("x = f()\ny = [1, z.w]\n(p := 1)") == "y = [1, z.w]"
