"""Whether several calls disturb one another, and whether what refuses an argument leaves it.

For tests: `held` and `again` hold all results of some calls while they make the next ones, write
into them and ask once more; `held`, for tests that know what is right, lays tensors in memory in
every way, `again` compares with each call alone.  `changed` and, once a function, `held` ask about
tensors in which other numbers stood before.  `held_results` holds results and no more; `refused`
looks at arguments after an error.
"""

import math

import torch

from efflib.lab.expect import expect_close, expect_same, expect_tensor
from efflib.lab.reused import reused

WAYS = 4  # that drive_laid knows
APART = 2  # the way where every second number is another's


def drive_laid(student, calls, ways):
    """Runs beside the student's code: the results of calls (name, *args) after the last of them,
    and once more, when others have written into the first.

    Tensors, also in lists and dicts, lie as `ways` says, a number for each of them, over and over:
    0 as they came, 1 transposed, 2 part of one that is larger in every dimension, of which the last
    leaves out every second entry, 3 within a larger one.
    """
    import itertools

    import torch

    turn = itertools.cycle(ways)

    def each(x, change):
        if isinstance(x, dict):
            return {key: each(part, change) for key, part in x.items()}
        if isinstance(x, list | tuple):
            return type(x)([each(part, change) for part in x])
        return change(x) if isinstance(x, torch.Tensor) else x

    def lay(x):
        way, made = next(turn) if x.dim() else 0, x.clone()
        if way == 1 and x.dim() > 1:
            made = x.mT.clone(memory_format=torch.contiguous_format).mT
        elif way in (1, 2):
            larger = x.repeat_interleave(2, -1).repeat([2] * (x.dim() - 1) + [1])
            made = larger[tuple(slice(n) for n in x.shape[:-1])][..., ::2]
        elif way == 3:
            k = x.shape[-1]
            return torch.cat([x.flip(-1), x, x.flip(-1)], -1)[..., k : 2 * k]
        # contiguous() returns a dimension of 1 with any stride as it is, and view(dtype) refuses it
        return x.clone() if made.is_contiguous() else made

    def all_of():
        return [getattr(student, name)(*each(tuple(args), lay)) for name, *args in calls]

    results = all_of()
    first = each(results, lambda x: x.detach().clone())
    filled = []  # zeros with ones: else zeros that are handed out twice would not be seen
    each(results, lambda x: filled.append((x.detach(), 0 if x.any() else 1)))
    for x, number in filled:
        if 0 not in x.stride():
            x.fill_(number)
    return first, each(all_of(), lambda x: x.detach().clone())


def drawn_ways(rng: torch.Generator) -> list[int]:
    """A hundred ways for drive_laid: of four in a row each is another one."""
    return [way for _ in range(25) for way in torch.randperm(WAYS, generator=rng).tolist()]


def held(student, rng: torch.Generator, calls: list[tuple]) -> list[tuple]:
    """Of each call (name, *args) both results that drive_laid gives.

    How tensors lie is drawn; of four in a row each lies in another way.  One call of each function
    has a third result, that of `reused`.
    """
    first, second = student.drive(drive_laid, calls, drawn_ways(rng))
    results = list(zip(first, second, strict=True))
    for place, third in reused(student, calls).items():
        results[place] += (third,)
    return results


def again(student, calls):
    """Calls one after the other give what each gives alone: nothing is kept, no memory shared.

    Tensors arrive as parts of larger ones, but those in {"whole": ...} as they are.
    """
    ways = []

    def plain(x, way=APART):
        if isinstance(x, dict) and "whole" in x:
            return plain(x["whole"], 0)
        if isinstance(x, list | tuple):
            return type(x)(plain(part, way) for part in x)
        if isinstance(x, torch.Tensor) and x.dim():
            ways.append(way)
        return x

    calls = [(name, *map(plain, args)) for name, *args in calls]
    alone = [getattr(student, name)(*args) for name, *args in calls]
    for results in student.drive(drive_laid, calls, ways):
        for (name, *_), result, right in zip(calls, results, alone, strict=True):
            alike(result, right, f"{name} among other calls: the result")


def drive_changed(student, calls, others):
    """Runs beside the student's code: results of second calls with the same tensors, in which the
    numbers of `others` stand by then."""
    import copy

    import torch

    def overwrite(own, new):
        if isinstance(own, torch.Tensor):
            own.copy_(new)
        if isinstance(own, list | tuple):
            for one, other in zip(own, new, strict=True):
                overwrite(one, other)

    found = []
    for (name, *args), (_, *new) in zip(calls, others, strict=True):
        own = copy.deepcopy(args)
        getattr(student, name)(*own)
        overwrite(own, new)
        found.append(getattr(student, name)(*own))
    return found


def changed(student, calls, others):
    """Calls count by the numbers that their tensors hold: none is known by its tensors alone.

    Each is asked twice, the second time when the numbers of `others` stand in the same tensors.
    """

    def plain(x):
        return x["whole"] if isinstance(x, dict) else x

    calls, others = ([(name, *map(plain, args)) for name, *args in c] for c in (calls, others))
    seen = student.drive(drive_changed, calls, others)
    for (name, *args), result in zip(others, seen, strict=True):
        what = f"{name} when other numbers stand in the same tensors: the result"
        alike(result, getattr(student, name)(*args), what)


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
    """Runs beside the student's code: what each call (name, *args) raised, and whether arguments
    and settings of torch are afterwards as they were."""
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

    def settings():
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()

    said, usual = [], settings()
    for name, *args in calls:
        given, kind = copy.deepcopy(args), "nothing"
        try:
            getattr(student, name)(*given)
        except Exception as error:
            kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        said.append([kind, same(list(args), given) and settings() == usual])
    return said


def shown(x):
    """An argument in a message: of a tensor its shape."""
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(shown, x))}]"
    return f"{tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


def refused(student, calls):
    """Each call (name, *args) raises ValueError and leaves its arguments, and torch's settings."""
    for (name, *args), (kind, same) in zip(calls, student.drive(drive_refused, calls), strict=True):
        what = f"{name}({', '.join(map(shown, args))})"
        assert kind == "ValueError", f"{what}: raised {kind}, expected ValueError"
        assert same, f"{what} changed an argument, or a setting of torch, before it raised"
