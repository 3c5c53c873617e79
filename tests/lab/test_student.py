"""A student's functions in a notebook behave as they will in grading."""

import pytest
import torch

from efflib.lab.calls import describe
from efflib.lab.codec import CodecError
from efflib.lab.student import LocalStudent, StudentError, student_error


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


class BadShape(ValueError):
    pass


def refuse_in_own_words():
    raise BadShape("3 rows")


def catching(f, x):
    try:
        return f(x)
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"


@pytest.fixture
def student():
    functions = (double, fill, refuse, refuse_in_own_words, odd, apply, catching)
    namespace = {f.__name__: f for f in functions}
    return LocalStudent({**namespace, "number": 3, "array": lambda: torch.zeros(2).numpy()})


def test_calls_by_name(student):
    assert student.double(21) == 42


def test_arguments_are_copies_and_a_changed_one_is_named(student):
    x = torch.zeros(3)
    with pytest.raises(StudentError, match="fill changed its argument x in place") as caught:
        student.fill(x)
    assert caught.value.kind == "ChangedArgument"
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


def test_an_own_kind_of_value_error_is_a_value_error(student):
    with pytest.raises(ValueError, match="BadShape: 3 rows") as caught:
        student.refuse_in_own_words()
    assert caught.value.kind == "ValueError"


@pytest.mark.parametrize("kind", [RuntimeError, NotImplementedError])
def test_an_untouched_stub_satisfies_no_expected_error(kind):
    def stub():
        raise NotImplementedError("Exercise 1")

    with pytest.raises(StudentError) as caught:
        LocalStudent({"stub": stub}).stub()
    assert not isinstance(caught.value, kind) and caught.value.kind == "NotImplementedError"


def test_a_missing_name_satisfies_no_expected_error():
    with pytest.raises(StudentError) as caught:
        LocalStudent({}).missing()
    assert not isinstance(caught.value, NameError) and caught.value.kind == "Undefined"


@pytest.mark.parametrize("fault", [SystemExit(0), GeneratorExit(), pytest.skip.Exception("x")])
def test_what_would_leave_the_test_is_a_student_error(fault):
    def leave():
        raise fault

    with pytest.raises(StudentError):
        LocalStudent({"leave": leave}).leave()


def test_stopping_the_kernel_is_not_taken_for_an_error():
    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalStudent({"stopped": stopped}).stopped()


def test_the_innermost_line_of_the_students_own_code_is_named():
    source = "import torch\ndef inner(x):\n    return torch.ones(2) @ x\n"
    source += "def f(x):\n    return inner(x)\n"
    namespace = {}
    exec(compile(source, "notebook.py", "exec"), namespace)
    with pytest.raises(RuntimeError) as caught:
        LocalStudent(namespace).f(torch.ones(3))
    assert caught.value.line.startswith("line 3 of inner")
    with pytest.raises(TypeError) as caught:
        LocalStudent(namespace).f()
    assert caught.value.line == ""


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit


def test_an_exception_that_cannot_be_printed_is_described():
    assert describe(Unspeakable()) == {"kind": "Unspeakable", "message": "", "line": ""}
    assert len(describe(ValueError("x" * 10_000))["message"]) == 300


@pytest.mark.parametrize(
    "info", [{}, {"kind": 3, "message": None}, {"kind": "x" * 999}, {"kind": "ExceptionGroup"}]
)
def test_any_description_becomes_an_exception(info):
    assert len(str(student_error(info))) < 700


def test_control_characters_do_not_reach_a_terminal():
    assert repr(student_error({"kind": "ValueError", "message": "no"})) == "ValueError: no"
    assert str(student_error({"kind": "ValueError", "message": "\x1b[2J\u202eab"})) == (
        "ValueError: ?[2J?ab"
    )


def test_other_exceptions_are_student_errors(student):
    with pytest.raises(StudentError, match="something of my own") as caught:
        student.odd()
    assert caught.value.kind == "Odd"


def test_missing_names_and_non_functions(student):
    with pytest.raises(StudentError, match="halve is not defined"):
        student.halve(1)
    with pytest.raises(TypeError, match="number is of type int, not a function"):
        student.number(1)


def test_a_numpy_array_is_refused_with_advice(student):
    with pytest.raises(StudentError, match="return a torch.Tensor"):
        student.array()


def test_functions_passed_as_arguments_are_called_here(student):
    calls = []
    assert student.apply(lambda x: calls.append(x) or x + 1, 4) == 5
    assert calls == [4]


def test_a_function_of_the_test_gets_and_gives_copies(student):
    seen, kept = [], torch.zeros(2)
    student.apply(lambda x: seen.append(x) or kept, torch.ones(2))
    assert type(seen[0]) is torch.Tensor and torch.equal(kept, torch.zeros(2))


def test_a_failed_assertion_in_a_function_of_the_test_cannot_be_caught(student):
    def f(x):
        assert x == 2, f"called with {x}"

    with pytest.raises(AssertionError, match="called with 1") as caught:
        student.catching(f, 1)
    assert not isinstance(caught.value, StudentError)


def test_other_errors_of_a_function_of_the_test_tell_their_kind_only(student):
    def f(x):
        raise KeyError("the expected value is 7")

    assert student.catching(f, 1) == "KeyError: 'raised by a function of the test'"


@pytest.mark.parametrize("x", [1, torch.zeros(2), [[[[[1]]]]]], ids=["int", "tensor", "nested"])
def test_who_calls_himself_for_ever_and_a_function_of_the_test_hears_of_recursion(x):
    def down(f, n=0):
        f(x)
        return down(f, n + 1)

    with pytest.raises(RecursionError):
        LocalStudent({"down": down}).down(lambda x: x)


def test_an_argument_that_cannot_travel_is_the_tests_own_fault(student):
    with pytest.raises(CodecError):
        student.double(object())


def gradient(student, x):
    x = x.clone().requires_grad_(True)
    student.double(x).sum().backward()
    return x.grad


def test_a_driver_runs_beside_the_students_code(student):
    assert torch.equal(student.drive(gradient, torch.ones(2)), torch.full((2,), 2.0))


def test_drivers_see_missing_functions_and_may_be_local(student):
    def local(student, x):
        import torch

        return student.double(torch.tensor(x)).item() + student.missing(x)

    with pytest.raises(StudentError, match="missing is not defined") as caught:
        student.drive(local, 2)
    assert caught.value.kind == "Undefined"


def test_settings_of_torch_that_one_function_leaves_do_not_reach_the_next():
    def careless():
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)

    def settings():
        return torch.is_grad_enabled(), torch.zeros(1).dtype == torch.float32

    student = LocalStudent({"careless": careless, "settings": settings})
    student.careless()
    assert student.settings() == (True, True) and torch.is_grad_enabled()

    def driver(student):
        import torch

        student.careless()
        return torch.is_grad_enabled()  # a driver sees what its own call left

    assert student.drive(driver) is False
    with torch.no_grad():
        assert student.settings() == (True, True) and not torch.is_grad_enabled()
