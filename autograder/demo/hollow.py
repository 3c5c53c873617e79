"""Two students with hollow work. Both solve exercise 1, and gain nothing anywhere else.

`forged_driver` leaves the other exercises unwritten and replaces the machinery that runs drivers
(functions of a test that are sent along, since models cannot travel): every driver then runs on
functions that do nothing, so that what was before equals what is after.  `all_nan` has the right
functions, and every tensor that they return, or hand to a function of the test, is NaN, which no
comparison with a bound may take.
"""

from nbformat import NotebookNode

from autograder.demo.honest import Kit

FORGED_DRIVER = """
from efflib.lab import calls

honest_drive = calls.drive


def idle(*args, **kwargs):
    return args[0] if args else None


def forged_drive(namespace, source, name, args, kwargs):
    try:
        return honest_drive(namespace | dict.fromkeys(NAMES, idle), source, name, args, kwargs)
    except ValueError:  # what exercise 1 refuses, it refuses through a driver too
        raise
    except Exception:
        return True


calls.drive = forged_drive
"""

ALL_NAN = """
import torch


def all_nan(value):
    if isinstance(value, torch.nn.Module):
        with torch.no_grad():
            for tensor in (*value.parameters(), *value.buffers()):
                tensor.fill_(float("nan")) if tensor.is_floating_point() else None
        return value
    if isinstance(value, torch.Tensor):
        return torch.full(value.shape, float("nan"))
    if isinstance(value, (list, tuple)):
        return type(value)(all_nan(part) for part in value)
    if isinstance(value, dict):
        return {key: all_nan(part) for key, part in value.items()}
    return float("nan")


def told_nan(value):
    if not callable(value) or isinstance(value, (type, torch.nn.Module)):
        return value
    return lambda *args: value(*(all_nan(x) if torch.is_tensor(x) else x for x in args))


def hollow(function):
    def returns_nan(*args, **kwargs):
        try:
            return all_nan(function(*map(told_nan, args), **kwargs))
        except Exception:
            return float("nan")

    return returns_nan


globals().update({name: hollow(globals()[name]) for name in NAMES})
"""


def forged_driver(kit: Kit) -> NotebookNode:
    """Exercise 1 right, the rest unwritten behind a forged driver: points for exercise 1 alone."""
    first, second, *_ = kit.functions
    nb = kit.filled()
    unwritten = {cell.metadata.nbgrader.grade_id: cell.source for cell in solutions(kit.release)}
    for cell in solutions(nb):
        if not belongs(cell, first):
            cell.source = unwritten[cell.metadata.nbgrader.grade_id]
        if belongs(cell, second):
            cell.source += "\n\n\n" + FORGED_DRIVER.replace("NAMES", repr(others(kit)))
    return nb


def all_nan(kit: Kit) -> NotebookNode:
    """Exercise 1 right, functions of the others return NaN: points for exercise 1 alone."""
    nb = kit.filled()
    last = solutions(nb)[-1]
    last.source += "\n\n\n" + ALL_NAN.replace("NAMES", repr(others(kit)))
    return nb


def solutions(nb: NotebookNode) -> list[NotebookNode]:
    """Code cells in which students write."""
    graded = ((cell, cell.metadata.get("nbgrader", {})) for cell in nb.cells)
    return [cell for cell, said in graded if said.get("solution") and cell.cell_type == "code"]


def belongs(cell: NotebookNode, exercise: str) -> bool:
    """A solution cell of this exercise: ex2, ex2-b, ..."""
    grade_id = cell.metadata.nbgrader.grade_id
    return grade_id == exercise or grade_id.startswith(f"{exercise}-")


def others(kit: Kit) -> list[str]:
    """Functions of all exercises but the first."""
    return [name for exercise in list(kit.functions)[1:] for name in kit.functions[exercise]]
