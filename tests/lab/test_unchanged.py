"""Every call of a student's function leaves its arguments alone, or is told which it changed."""

import pytest
import torch

from efflib.lab.student import LocalStudent, StudentError
from efflib.lab.unchanged import ChangedArgument, call_unchanged, same, snapshot

NAN = float("nan")


def clamp_first(x, low=0.0):
    return x.clamp_(min=low)


def grow(values):
    values.append(1)
    return len(values)


def forget(options):
    options.pop("bits")
    return 0


def last_of(*tensors):
    tensors[-1].zero_()
    return 0


def deep(state):
    state["layers"][1][0] += 1
    return 0


def transpose(x):
    x.t_()
    return x.clone()


@pytest.mark.parametrize(
    ("function", "args", "named"),
    [
        (clamp_first, (torch.tensor([-1.0, NAN]),), "x"),
        (grow, ([1, 2],), "values"),
        (forget, ({"bits": 4},), "options"),
        (last_of, (torch.ones(2), torch.ones(2)), "number 2"),
        (deep, ({"layers": [torch.ones(1), [torch.ones(2)]]},), "state"),
        (transpose, (torch.ones(2, 3),), "x"),
    ],
)
def test_a_changed_argument_is_named(function, args, named):
    with pytest.raises(ChangedArgument, match=f"changed its argument {named} in place"):
        call_unchanged(function, function.__name__, args, {})


def test_a_changed_keyword_argument_is_named():
    with pytest.raises(ChangedArgument, match="argument options in place"):
        call_unchanged(forget, "forget", (), {"options": {"bits": 4}})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_arguments_that_stay_are_no_fault(dtype):
    x = torch.ones(2, 3).to(dtype)
    odd = [x.T, x[0, 0], x[:0], torch.tensor([NAN, torch.inf, -0.0])]
    value = call_unchanged(lambda *tensors: [t.clone() for t in tensors], "copy", tuple(odd), {})
    assert len(value) == len(odd)
    returned = call_unchanged(lambda x: x, "same", (x,), {})
    assert returned is x, "an argument may be returned"
    assert call_unchanged(lambda m, n: 1, "module", (torch.nn.Linear(2, 2), NAN), {}) == 1


def test_gradients_may_flow_into_an_argument():
    x = torch.ones(2, requires_grad=True)
    call_unchanged(lambda x: (x * x).sum(), "square", (x,), {}).backward()
    assert x.grad is not None


def test_an_error_of_the_function_is_told_as_well():
    def breaks(x):
        x.zero_()
        raise ValueError("no")

    with pytest.raises(ChangedArgument, match="its argument x in place, and raised ValueError: no"):
        call_unchanged(breaks, "breaks", (torch.ones(1),), {})
    student = LocalStudent({"breaks": breaks})
    with pytest.raises(StudentError) as caught:
        student.breaks(torch.ones(1))
    assert caught.value.kind == "ChangedArgument"


def drive(student, x):
    return student.clamp_first(x)


def test_drivers_see_it_as_well():
    student = LocalStudent({"clamp_first": clamp_first})
    with pytest.raises(StudentError, match="clamp_first changed its argument x in place"):
        student.drive(drive, torch.tensor([-1.0]))


def test_one_element_of_a_larger_tensor_is_compared_by_its_bytes():
    """Its stride is 2, and to torch it lies in one piece."""
    one = torch.stack([torch.tensor([7]), torch.tensor([8])], -1)[..., 0]
    assert one.stride() == (2,) and same(snapshot(one), one)
    before = snapshot(one)
    one.add_(1)
    assert not same(before, one)


def test_a_refusal_that_changes_nothing_stays_what_it_is():
    def refuse(x):
        raise ValueError("no bits")

    with pytest.raises(ValueError, match="no bits"):
        call_unchanged(refuse, "refuse", (torch.ones(2),), {})
