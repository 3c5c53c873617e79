"""Whether several calls disturb one another, and whether what refuses an argument leaves it.

For tests: `again` holds all results of some calls while it makes the next ones, writes into them
and asks once more, and compares with each call alone; `held_results` holds them alone, for tests
that know what is right; `refused` looks at arguments after an error.
"""

import math

import torch

from efflib.lab.expect import expect_close, expect_same, expect_tensor


def drive_again(student, calls):
    """Runs beside the student's code: all results of calls (name, *args), as they are after the
    last, and once more, when others have written into those.

    Tensors arrive as parts of larger ones, where every second number is another's, but those in
    a dictionary as they are.
    """
    import torch

    def cut(x):
        if isinstance(x, list | tuple):
            return type(x)(cut(part) for part in x)
        if isinstance(x, dict) and "whole" in x:
            return x["whole"]
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            return x
        larger = x.repeat_interleave(2, -1).repeat([2] * (x.dim() - 1) + [1])
        return larger[tuple(slice(n) for n in x.shape[:-1])][..., ::2]

    def copied(x, spoil=False):
        if isinstance(x, list | tuple):
            return [copied(part, spoil) for part in x]
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach()
        if spoil and 0 not in x.stride():
            x.zero_()
        return x.clone()

    def all_of():
        return [getattr(student, name)(*map(cut, args)) for name, *args in calls]

    held = all_of()
    first = copied(held)
    copied(held, spoil=True)
    return first, copied(all_of())


def again(student, calls):
    """Calls one after the other give what each gives alone: nothing is kept, no memory shared."""
    plain = [
        [x["whole"] if isinstance(x, dict) and "whole" in x else x for x in args]
        for _, *args in calls
    ]
    alone = [getattr(student, call[0])(*args) for call, args in zip(calls, plain, strict=True)]
    for results in student.drive(drive_again, calls):
        for (name, *_), result, right in zip(calls, results, alone, strict=True):
            alike(result, right, f"{name} among other calls: the result")


def drive_held(student, name, calls):
    """Runs beside the student's code: all results of a function, held until the last is there."""
    return [getattr(student, name)(*args) for args in calls]


def held_results(student, name, calls):
    """What name(*args) gave for each args of calls, read when the last result was there."""
    return student.drive(drive_held, name, calls)


def alike(found, right, what):
    if isinstance(right, list | tuple):
        assert isinstance(found, list | tuple) and len(found) == len(right), f"{what} is another"
        for one, other in zip(found, right, strict=True):
            alike(one, other, what)
    elif not isinstance(right, torch.Tensor):
        same = found == right and not isinstance(right, complex)
        if isinstance(right, float):  # sums may be taken in another order
            same = math.isfinite(right) and math.isclose(found, right, rel_tol=1e-5, abs_tol=1e-9)
        assert same, f"{what} is {found}, expected {right}"
    elif right.is_complex() or not right.isfinite().all():
        raise AssertionError(f"{what} holds no real numbers")
    elif not right.is_floating_point():
        expect_same(found, right, what)
    else:
        expect_tensor(found, what, right.dtype, tuple(right.shape))
        rtol = max(4 * torch.finfo(right.dtype).eps, 2e-5)  # sums in the order of other strides
        atol = rtol * float(right.detach().abs().max()) if right.numel() else 0.0
        expect_close(found, right, what=what, rtol=rtol, atol=atol)


def drive_refused(student, calls):
    """Runs beside the student's code: what each call (name, *args) raised, and whether an argument
    is another one afterwards."""
    import copy

    import torch

    def same(a, b):
        if isinstance(a, torch.Tensor):
            alike = a.shape == b.shape and a.dtype == b.dtype
            return alike and bool(((a == b) | (a != a)).all())
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, dict):
            return list(a) == list(b) and all(map(same, a.values(), b.values()))
        return a == b or a != a  # NaN

    said = []
    for name, *args in calls:
        given, kind = copy.deepcopy(args), "nothing"
        try:
            getattr(student, name)(*given)
        except Exception as error:
            kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        said.append([kind, same(list(args), given)])
    return said


def shown(x):
    """An argument in a message: of a tensor its shape."""
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(shown, x))}]"
    return f"{tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


def refused(student, calls):
    """Each call (name, *args) raises ValueError and leaves its arguments."""
    for (name, *args), (kind, same) in zip(calls, student.drive(drive_refused, calls), strict=True):
        what = f"{name}({', '.join(map(shown, args))})"
        assert kind == "ValueError", f"{what}: raised {kind}, expected ValueError"
        assert same, f"{what} changed an argument before it raised"
