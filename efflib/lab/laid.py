"""Calls whose tensors lie in memory in every way that a card admits, and whose results are held.

For tests that draw inputs anywhere in what a card admits, and so look for mistakes that show only
where two corners meet: bfloat16 in a view, or the second call in another dtype.  `again` (again.py)
compares calls with each other; here the test knows what is right.
"""

import torch

WAYS = 4  # that drive_laid knows


def drive_laid(student, calls, ways):
    """Runs beside the student's code: the results of calls (name, *args) after the last of them,
    and once more, when others have written into the first.

    Tensors, also in lists and dicts, lie as `ways` says, a number for each of them, over and over:
    0 as they came, 1 transposed, 2 every second entry of a larger one, 3 within a larger one.
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
            made = x.repeat_interleave(2, -1)[..., ::2]
        elif way == 3:
            k = x.shape[-1]
            return torch.cat([x.flip(-1), x, x.flip(-1)], -1)[..., k : 2 * k]
        # contiguous() returns a dimension of 1 with any stride as it is, and view(dtype) refuses it
        return x.clone() if made.is_contiguous() else made

    def zero(x):
        if 0 not in x.stride():
            x.detach().zero_()

    def all_of():
        return [getattr(student, name)(*each(tuple(args), lay)) for name, *args in calls]

    results = all_of()
    first = each(results, lambda x: x.detach().clone())
    each(results, zero)
    return first, each(all_of(), lambda x: x.detach().clone())


def held(student, rng: torch.Generator, calls: list[tuple]) -> list[tuple]:
    """Of each call (name, *args) both results that drive_laid gives.

    How tensors lie is drawn; of four in a row each lies in another way.
    """
    ways = [way for _ in range(25) for way in torch.randperm(WAYS, generator=rng).tolist()]
    first, second = student.drive(drive_laid, calls, ways)
    return list(zip(first, second, strict=True))
