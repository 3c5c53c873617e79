"""Pipelines: p stages, m micro-batches, and the order in which each stage works.

An order is a list of ("F", i) and ("B", i): forward and backward of micro-batch i.  F(i) of a stage
begins when the stage before has done its F(i); B(i) when the stage behind has done its B(i).

    GPipe   all forwards, then all backwards: a stage keeps the activations of all m micro-batches
    1F1B    stage s (from 0) does p - 1 - s forwards, then one forward and one backward by turns,
            then the backwards that are left: at most p - s micro-batches are alive

Both take (m + p - 1) (f + b), of which a stage works m (f + b): the idle share, the bubble, is
(p - 1) / (m + p - 1).  1F1B saves memory and no time; what it allows is a larger m.

Sources: Huang et al. 2019, "GPipe" (arXiv:1811.06965); Narayanan et al. 2021 (arXiv:2104.04473),
section 2.2.
"""

Order = list[tuple[str, int]]


def gpipe(stage: int, stages: int, micro: int) -> Order:
    """All forwards, then all backwards, both from micro-batch 0 on."""
    return [(kind, i) for kind in "FB" for i in range(micro)]


def one_f_one_b(stage: int, stages: int, micro: int) -> Order:
    """1F1B of stage 0 ... stages - 1."""
    ahead = min(stages - 1 - stage, micro)
    order = [("F", i) for i in range(ahead)]
    for i in range(micro - ahead):
        order += [("F", ahead + i), ("B", i)]
    return order + [("B", i) for i in range(micro - ahead, micro)]


def start_times(orders: list[Order], forward: float, backward: float) -> list[list[float]]:
    """When each piece of work begins, stage by stage, if all begin as early as they can.

    Raises ValueError where a stage waits for ever.
    """
    times = {"F": forward, "B": backward}
    starts: list[list[float]] = [[] for _ in orders]
    ends: dict[tuple[int, str, int], float] = {}
    free = [0.0] * len(orders)
    while any(len(own) < len(order) for own, order in zip(starts, orders, strict=True)):
        moved = False
        for s, order in enumerate(orders):
            while len(starts[s]) < len(order):
                kind, i = order[len(starts[s])]
                before = s - 1 if kind == "F" else s + 1
                if 0 <= before < len(orders):
                    needs = ends.get((before, kind, i))
                else:
                    needs = 0.0 if kind == "F" else ends.get((s, "F", i))
                if needs is None:
                    break
                begin = max(free[s], needs)
                starts[s].append(begin)
                ends[s, kind, i] = free[s] = begin + times[kind]
                moved = True
        if not moved:
            stuck = [s for s, o in enumerate(orders) if len(starts[s]) < len(o)]
            raise ValueError(f"stages {stuck} wait for ever")
    return starts


def bubble(stages: int, micro: int) -> float:
    """The share of a stage's time in which it waits: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro + stages - 1)


def live(order: Order) -> int:
    """The most micro-batches whose forward is done and whose backward is not."""
    alive = most = 0
    for kind, _ in order:
        alive += 1 if kind == "F" else -1
        most = max(most, alive)
    return most
