"""Why no rank can go on, in words, and what each has called, side by side."""

from efflib.parallel.communicator import Call

SHOWN = 12  # calls of each rank, the last ones
WIDTH = 28


def why(asked: dict[int, Call], ended: set[int], size: int) -> str:
    """One sentence on each rank that waits.  asked: {rank: the call it waits in}."""
    together = {rank: c for rank, c in asked.items() if c.peer is None}
    kinds = {(c.kind, c.op) for c in together.values()}
    said = []
    if len(kinds) > 1:
        calls = ", ".join(f"rank {r} in {_name(c)}" for r, c in sorted(together.items()))
        said.append(f"the ranks call in different orders: {calls}")
    for rank, call in sorted(asked.items()):
        if call.peer is None:
            missing = [r for r in range(size) if r not in together]
            if missing and len(kinds) == 1:
                there = ", ".join(_where(r, asked) for r in missing)
                said.append(f"rank {rank} waits in {_name(call)} for all ranks: {there}")
            continue
        if call.kind == "recv":
            what = f"rank {rank} waits for a message from rank {call.peer} that nobody sends"
        else:
            what = f"rank {rank} sends to rank {call.peer}, which does not receive"
        said.append(f"{what}: {_where(call.peer, asked)}")
    return "; ".join(said)


def _where(rank: int, asked: dict[int, Call]) -> str:
    if rank not in asked:
        return f"rank {rank} has returned"
    call = asked[rank]
    if call.kind == "send":
        return f"rank {rank} itself sends to rank {call.peer}"
    if call.kind == "recv":
        return f"rank {rank} itself waits for rank {call.peer}"
    return f"rank {rank} waits in {_name(call)}"


def _name(call: Call) -> str:
    return call.kind if call.op in (None, "sum") else f"{call.kind} ({call.op})"


def sequences(history: list[list[Call]], waiting: set[int]) -> str:
    """The calls of all ranks as columns; the last one of a rank that waits is marked."""
    columns = []
    for rank, calls in enumerate(history):
        rows = [str(call) for call in calls]
        if rank in waiting and rows:
            rows[-1] += " <- waits"
        else:
            rows.append("(returned)")
        columns.append(rows[-SHOWN:])
    lines = ["| ".join(f"rank {r}".ljust(WIDTH) for r in range(len(columns)))]
    for i in range(max(map(len, columns))):
        cells = [column[i] if i < len(column) else "" for column in columns]
        lines.append("| ".join(cell.ljust(WIDTH) for cell in cells))
    return "\n".join(line.rstrip() for line in lines)
