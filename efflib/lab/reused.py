"""Whether a function knows its tensors by the numbers that they hold: for `efflib.lab.again`."""

import torch

MOST = 10_000  # large ones show no more, and take long


def drive_reused(student, calls):
    """Runs beside the student's code: results of calls (name, *args), each asked before while
    other numbers stood in the same tensors."""
    import contextlib

    import torch

    def floats(x):
        if isinstance(x, dict | list | tuple):
            parts = x.values() if isinstance(x, dict) else x
            return [one for part in parts for one in floats(part)]
        return [x] if isinstance(x, torch.Tensor) and x.is_floating_point() else []

    results = []
    for name, *args in calls:
        kept = [(x.data, x.detach().clone()) for x in floats(args)]
        for x, numbers in kept:
            x.copy_(numbers.flatten().roll(1).view(numbers.shape))
        with contextlib.suppress(Exception):  # they may be none that the card admits
            getattr(student, name)(*args)
        for x, numbers in kept:
            x.copy_(numbers)
        results.append(getattr(student, name)(*args))
    return results


def reused(student, calls) -> dict:
    """{place among calls (name, *args): result of drive_reused}: of each name one call, that with
    the most floats of at most MOST."""
    some = {}
    for place, (name, *args) in enumerate(calls):
        if 1 < (n := floats_in(args)) <= MOST and n > some.get(name, (0,))[0]:
            some[name] = n, place
    places = [place for _, place in some.values()]
    asked = [calls[place] for place in places]
    return dict(zip(places, student.drive(drive_reused, asked), strict=True))


def floats_in(x) -> int:
    if isinstance(x, dict | list | tuple):
        return sum(map(floats_in, x.values() if isinstance(x, dict) else x))
    return x.numel() if isinstance(x, torch.Tensor) and x.is_floating_point() else 0
