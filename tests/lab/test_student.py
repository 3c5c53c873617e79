"""A student's functions in a notebook behave as they will in grading."""

import pytest
import torch

from efflib.lab.student import LocalStudent, StudentError


def double(x):
    return x * 2


def fill(x):
    return x.fill_(7)


def refuse(x):
    raise ValueError(f"bad shape {tuple(x.shape)}")


class Odd(Exception):
    pass


def odd():
    raise Odd("something of my own")


def apply(f, x):
    return f(x)


@pytest.fixture
def student():
    functions = (double, fill, refuse, odd, apply)
    namespace = {f.__name__: f for f in functions}
    return LocalStudent({**namespace, "number": 3, "array": lambda: torch.zeros(2).numpy()})


def test_calls_by_name(student):
    assert student.double(21) == 42


def test_arguments_are_copies(student):
    x = torch.zeros(3)
    assert torch.equal(student.fill(x), torch.full((3,), 7.0))
    assert torch.equal(x, torch.zeros(3))


def test_builtin_exceptions_keep_their_type_and_say_what_was_said(student):
    with pytest.raises(ValueError, match=r"bad shape \(2,\)") as caught:
        student.refuse(torch.zeros(2))
    assert isinstance(caught.value, StudentError) and caught.value.kind == "ValueError"


@pytest.mark.parametrize(
    "kind", [KeyError, UnicodeDecodeError, StopIteration, ImportError, SyntaxError, RecursionError]
)
def test_every_builtin_exception_can_be_rebuilt(kind):
    fault = kind("utf-8", b"x", 0, 1, "why") if kind is UnicodeDecodeError else kind("why")

    def fail():
        raise fault

    with pytest.raises(kind) as caught:
        LocalStudent({"fail": fail}).fail()
    assert "why" in str(caught.value)


def test_other_exceptions_are_student_errors(student):
    with pytest.raises(StudentError, match="something of my own") as caught:
        student.odd()
    assert caught.value.kind == "Odd"


def test_missing_names_and_non_functions(student):
    with pytest.raises(StudentError, match="halve is not defined"):
        student.halve(1)
    with pytest.raises(TypeError, match="number is a int, not a function"):
        student.number(1)


def test_a_numpy_array_is_refused_with_advice(student):
    with pytest.raises(StudentError, match="return a torch.Tensor"):
        student.array()


def test_functions_passed_as_arguments_are_called_here(student):
    calls = []
    assert student.apply(lambda x: calls.append(x) or x + 1, 4) == 5
    assert calls == [4]


def gradient(student, x):
    x = x.clone().requires_grad_(True)
    student.double(x).sum().backward()
    return x.grad


def test_a_driver_runs_beside_the_students_code(student):
    assert torch.equal(student.drive(gradient, torch.ones(2)), torch.full((2,), 2.0))
