"""Mutants: each kind is made, the holes of a weak suite come out, and none of a strong one."""

import pytest
from toylab import NAME, write
from toytriad import SOLVED, toy, triad

from autograder import cli
from autograder.labs.manifest import LabError
from autograder.triad.mutants import (
    Mutant,
    Verdict,
    prepare,
    problems_of,
    read_equivalent,
    run_mutants,
)
from autograder.triad.mutate import mutants_of
from autograder.triad.table import mutant_rows, mutants_markdown


def made(body):
    """{what was done: body of the mutant} of a function with this body."""
    source = "def f(x, y, dim=0):\n" + "\n".join("    " + line for line in body.split("\n"))
    found = [(what, text.split("\n", 1)[1]) for _, what, _, text in mutants_of(source)]
    return {what: "\n".join(line[4:] for line in text.split("\n")) for what, text in found}


SLIPS = {
    "return x + 5": {
        "6 for 5": "return x + 6", "0 for 5": "return x + 0", "-5 for 5": "return x + -5",
        "Sub for Add": "return x - 5", "add_ in place": "return x.add_(5)",
        "Add: right side dropped": "return x",
    },
    "return x * 0.5": {"0.505 for 0.5": "return x * 0.505"},
    "return x - y": {"operands swapped": "return y - x"},
    "return x < y": {"LtE for Lt": "return x <= y", "Gt for Lt": "return x > y"},
    "return x == y": {"NotEq for Eq": "return x != y"},
    "return x and not y": {
        "Or for And": "return x or not y", "Not dropped": "return x and y",
        "condition 1 dropped": "return not y",
    },
    "return x if y else 0": {
        "choice swapped": "return 0 if y else x", "always the first": "return x",
    },
    "return x.amax(dim=1, keepdim=True)": {
        "amax dropped": "return x", "amin for amax": "return x.amin(dim=1, keepdim=True)",
        "dim of amax dropped": "return x.amax(keepdim=True)",
        "keepdim of amax dropped": "return x.amax(dim=1)",
        "0 for 1": "return x.amax(dim=0, keepdim=True)",
    },
    "return x.float().clamp(0, y)": {
        "float dropped": "return x.clamp(0, y)", "clamp dropped": "return x.float()",
        "double for float": "return x.double().clamp(0, y)",
        "bfloat16 for float": "return x.bfloat16().clamp(0, y)",
        "clamp in place": "return x.float().clamp_(0, y)",
        "arguments 1 and 2 of clamp swapped": "return x.float().clamp(y, 0)",
    },
    "return x.clone().detach().sqrt().abs()": {
        "clone dropped": "return x.detach().sqrt().abs()",
        "detach dropped": "return x.clone().sqrt().abs()",
        "sqrt dropped": "return x.clone().detach().abs()",
        "abs dropped": "return x.clone().detach().sqrt()",
    },
    "return torch.round(x)": {
        "round dropped": "return x", "half up": "return torch.floor(x + 0.5)",
        "floor for round": "return torch.floor(x)",
    },
    "return x.to(torch.int32)[1:, y]": {
        "to dropped": "return x[1:, y]", "int64 for int32": "return x.to(torch.int64)[1:, y]",
        "lower end of the slice dropped": "return x.to(torch.int32)[:, y]",
    },
    "x = x + y\nreturn x": {"in place": "x += y\nreturn x", "statement dropped": "pass\nreturn x"},
    "if x:\n    raise ValueError('no')\nreturn y": {
        "guard dropped": "pass\nreturn y", "raises KeyError": "if x:\n    raise KeyError\nreturn y",
        "condition negated": "if not x:\n    raise ValueError('no')\nreturn y",
    },
    "for a in x:\n    y += a\nreturn y": {
        "first only": "for a in list(x)[:1]:\n    y += a\nreturn y",
        "last only": "for a in list(x)[-1:]:\n    y += a\nreturn y",
        "overwritten": "for a in x:\n    y = a\nreturn y",
    },
    "with no_grad():\n    y.zero_()\nreturn y": {
        "with dropped": "if True:\n    y.zero_()\nreturn y",
        "zero_ dropped": "with no_grad():\n    y\nreturn y",
    },
    "return [a for a in x if a]": {"filter dropped": "return [a for a in x]"},
    "return x, y": {"order changed": "return (y, x)"},
}  # fmt: skip


@pytest.mark.parametrize("body", SLIPS)
def test_slips(body):
    found = made(body)
    assert {what: found.get(what) for what in SLIPS[body]} == SLIPS[body]


def test_there_are_no_repeats_and_none_is_the_solution():
    source = "def f(x):\n    return x + 1 - 1"
    texts = [text for *_, text in mutants_of(source)]
    assert len(set(texts)) == len(texts) > 5 and source not in texts


def test_what_students_are_given_stays():
    source = '''
LIMIT = 7
def f(x: int = 3) -> "4":
    """5"""
    lines = 6
    ### BEGIN SOLUTION
    def inner(y: int = 8): return y
    if x:
        raise ValueError(f"{x + 9}")
    return x + 2
    ### END SOLUTION
'''
    found = list(mutants_of(source))
    assert {what for _, what, _, _ in found if " for " in what} == {
        "3 for 2", "0 for 2", "-2 for 2", "1 for 2", "Sub for Add",
    }  # fmt: skip
    assert {line for *_, line, _ in found} == {2, 3, 4} and {f for f, *_ in found} == {"f"}


def test_nothing_is_taken_in_place_that_is_new():
    assert "add_ in place" not in made("return x.abs() + y")
    assert "add_ in place" in made("return x[0].float().reshape(3) + y")


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Of the toy lab as it is, whose tests let through what makes no difference to them."""
    _, lab = toy(tmp_path_factory.mktemp("toy"))
    mutants = prepare(lab, SOLVED)
    found = list(run_mutants(lab, SOLVED, mutants, jobs=1))
    assert len(found) == len(mutants) and len({m.name for m in mutants}) == len(mutants)
    return lab, mutants, [verdict for verdict in found if verdict is not None]


def survivors(verdicts):
    return {verdict.mutant.name for verdict in verdicts if not verdict.killed_by}


def killed(verdicts):
    return {v.mutant.name: (v.killed_by, v.test) for v in verdicts if v.killed_by}


def test_what_the_toy_suite_sees_and_what_it_does_not(verdicts):
    _, _, found = verdicts
    dead = killed(found)
    by_hand = ("public", "test_scale_by_hand")
    for name in ("L2:Div for Mult", "nan", "complex", "first argument", "factor = 3.0 always"):
        assert f"ex1:scale:{name}" in {*dead, *survivors(found)}
    assert dead["ex1:scale:L2:Div for Mult"] == by_hand
    assert dead["ex1:scale:nan"] == by_hand and dead["ex2:clip:inf"][0] == "public"
    # only the hidden test uses another factor, and only it has a second call of the same length
    assert dead["ex1:scale:factor = 3.0 always"] == ("hidden", "test_scale_negative")
    # what a function changes in its caller's list, the runtime sees in every test
    assert dead["ex1:scale:numbers destroyed"] == by_hand
    # [tensor(3.0)] == [3.0] is true: no test asks for floats
    assert survivors(found) == {"ex1:scale:number for tensor"}


def test_a_mutant_that_never_acted_is_none(verdicts):
    """The toy functions return lists of floats: there is no float32 to be made a float64."""
    _, mutants, found = verdicts
    names = {verdict.mutant.name for verdict in found}
    left_out = {mutant.name for mutant in mutants} - names
    assert "ex1:scale:float64" in left_out and "ex1:scale:factor destroyed" in left_out


def test_a_hole_is_reported_and_a_judgement_needs_a_survivor(verdicts):
    _, _, found = verdicts
    everything = problems_of(found, {})
    assert everything == ["ex1:scale:number for tensor survives"]
    judged = {name: "no harm" for name in survivors(found)}
    assert problems_of(found, judged) == []
    assert problems_of(found, {"*": "no harm"}) == []
    stale = judged | {"ex1:scale:nan": "no harm", "ex7:gone": "no harm", "ex2:*:L99:*": "none"}
    assert problems_of(found, stale) == [
        "equivalent.toml lists ex1:scale:nan, but test_scale_by_hand kills it",
        "equivalent.toml lists ex7:gone, but there is no such survivor",
        "equivalent.toml lists ex2:*:L99:*, but there is no such survivor",
    ]


def test_the_numbers_add_up(verdicts):
    lab, _, found = verdicts
    rows = mutant_rows(lab, found, {"ex2:*": "no harm"})
    assert [row[0] for row in rows] == ["ex1", "ex2", "all"]
    for row in rows:
        assert int(row[1]) == sum(map(int, row[2:]))
    assert int(rows[2][1]) == len(found) and (rows[0][5], rows[1][5]) == ("1", "0")
    rows = mutant_rows(lab, found, {"ex1:*": "no harm"})
    assert rows[0][4:] == ("1", "0")
    table = mutants_markdown([(lab, rows)])
    assert f"| {NAME} | ex1 | {rows[0][1]} |" in table and table.count("\n") == 5


WEAK = """
@exercise("ex1", points=50, invariant="there are as many numbers as before", cause="one was lost")
def test_length(student, rng):
    assert len(student.scale(torch.ones(2), 2.0)) == len(student.scale(torch.ones(2) * 3, 2.0)) == 2
"""


def test_a_weak_suite_lets_more_through(tmp_path, verdicts):
    """It compares no value, passes one factor only, and calls twice with one shape."""
    _, lab = toy(tmp_path)
    for path, test in zip(lab.test_files.values(), (WEAK, ""), strict=True):
        text = path.read_text()
        start, end = text.index('@exercise("ex1"'), text.index('@exercise("ex2"')
        path.write_text(text[:start] + "import torch\n" + test + "\n\n" + text[end:])
    ex1 = [mutant for mutant in prepare(lab, SOLVED) if mutant.exercise == "ex1"]
    through = survivors(filter(None, run_mutants(lab, SOLVED, ex1, jobs=1)))
    holes = ["L2:Div for Mult", "nan", "inf", "first argument", "cached by shape", "float64"]
    for name in [*holes, "factor = 2.0 always"]:
        assert f"ex1:scale:{name}" in through - survivors(verdicts[2])


FAILS = """
@exercise("ex2", points=1, invariant="x", cause="x")
def test_that_nobody_passes(student, rng):
    assert student.clip([1.0], 0.0, 2.0) == []
"""


def test_a_solution_that_fails_has_no_survivors_to_tell(tmp_path):
    root, lab = toy(tmp_path)
    hidden = lab.test_files["hidden"]
    hidden.write_text(hidden.read_text() + FAILS)
    with pytest.raises(LabError, match="canonical solution itself fails test_that_nobody_passes"):
        prepare(lab, SOLVED)


def test_a_judgement_has_a_reason(tmp_path):
    root, lab = toy(tmp_path)
    write(triad(root) / "equivalent.toml", b'"ex1:scale:nan" = " "')
    with pytest.raises(LabError, match="no reason is given for ex1:scale:nan"):
        read_equivalent(lab)


def test_diff_and_sentence_of_a_survivor():
    mutant = Mutant("ex1:f:L1:abs dropped", "ex1", (), ("- return x.abs()", "+ return x"))
    assert problems_of([Verdict(mutant, "")], {}) == [
        "ex1:f:L1:abs dropped survives  - return x.abs()  + return x"
    ]


WRONG_USAGE = (
    ["--mutants", "--seeds", "3"],
    ["--markdown", "table.md"],
    ["--mutants", "--markdown", "nowhere/table.md"],
    ["--seeds", "0"],
)


@pytest.mark.parametrize("options", WRONG_USAGE, ids=" ".join)
def test_wrong_usage(options, tmp_path):
    assert cli.run(["triad", NAME, "--course", str(tmp_path), *options]) == 2
