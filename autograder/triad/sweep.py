"""The sweep: right results that became NaN, infinite, complex, or got another dtype.

The numbers of a mutant say whether some test kills it.  Here more is asked of NaN, infinity and
complex numbers: no test may pass that was given one, because a comparison that NaN passes
(`error > bound`) takes any other nonsense too, as soon as the tests beside it look away.
Another dtype than float32 must cost at least one test of the exercise, unless equivalent.toml says
why it is right ("ex4:page_bounds:float64").
"""

import ast
from collections.abc import Iterator, Sequence

from autograder.labs.manifest import LabSpec
from autograder.triad.forked import Outcome, Run, run_all
from autograder.triad.mutants import WRAP, read_equivalent, wrapping
from autograder.triad.spoilt import SPOILT
from autograder.triad.variants import frozen_but

DTYPES = ("float64", "bfloat16")
NUMBERLESS = ("str", "None", "str | None", "KVCache")  # what functions may say that they return


def sweep(lab: LabSpec, cells: tuple[str, ...], exercise: str) -> list[str]:
    """What is not as it should be. cells: of the solved notebook (autograder.triad.run)."""
    freeze = frozen_but(lab, exercise, ())[-1].source
    kernels = kernel_functions(cells)
    functions = [f for f in lab.exercises[exercise].functions if f not in kernels]
    right = read_equivalent(lab)
    cases = [(f, kind) for f in functions for kind in SPOILT]
    runs = [
        # of dtypes one failure is asked for, so the first ends the run
        Run((freeze, WRAP + wrapping(f, kind)), exercise, first=kind in DTYPES)
        for f, kind in cases
    ]
    outcomes = run_all(lab, cells, runs)
    holes = [
        hole
        for (function, kind), outcome in zip(cases, outcomes, strict=True)
        if kind not in DTYPES or f"{exercise}:{function}:{kind}" not in right
        for hole in holes_of(f"{exercise}:{function}:{kind}", kind, outcome)
    ]
    given = {f for (f, _), o in zip(cases, outcomes, strict=True) if any(s.touched for s in o.saw)}
    unused = set(functions) - given - text_functions(cells)
    return holes + [
        f"{exercise}:{f}: no test looks at a number that it returns" for f in sorted(unused)
    ]


def text_functions(cells: Sequence[str]) -> set[str]:
    """Functions that return text, None or a cache: no number to spoil. Mutants judge them.

    Of classes those all of whose public methods do.
    """
    found = {node.name for node in definitions(cells) if numberless(node)}
    for cell in cells:
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.ClassDef):
                methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
                public = [m for m in methods if not m.name.startswith("_")]
                found |= {node.name} if public and all(map(numberless, public)) else set()
    return found


def numberless(node: ast.FunctionDef) -> bool:
    return node.returns is not None and ast.unparse(node.returns) in NUMBERLESS


def kernel_functions(cells: Sequence[str]) -> set[str]:
    """Triton kernels: they return nothing, and a wrapper around one is no kernel."""
    return {
        node.name
        for node in definitions(cells)
        if any(ast.unparse(d).startswith("triton.jit") for d in node.decorator_list)
    }


def definitions(cells: Sequence[str]) -> Iterator[ast.FunctionDef]:
    nodes = (node for cell in cells for node in ast.walk(ast.parse(cell)))
    return (node for node in nodes if isinstance(node, ast.FunctionDef))


def holes_of(name: str, kind: str, outcome: Outcome) -> Sequence[str]:
    """Tests that were given such a result and passed."""
    given = [saw for saw in outcome.saw if saw.touched]
    if kind in DTYPES:
        return [f"{name}: no test fails"] if given and not outcome.failed else []
    return [f"{name}: {saw.test} passes" for saw in given if saw.passed]
