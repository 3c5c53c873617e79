"""Which tokens the next step computes: `efflib.serving.schedulers`, with proposals.

A proposal is one more token that a request lacks.  So a scheduler that knows nothing of speculation
cuts proposals where the budget or the blocks end, as it cuts a prompt.

    chunked         pieces of prompts beside answers (`preempting`)
    prompts_first   whole prompts if one may come, and then nobody answers; else answers
"""

from efflib.serving.schedulers import Plan, Running, Waiting, preempting, prefill_first


def chunked(
    running: Running, waiting: Waiting, free: int, budget: int, most: int, block: int
) -> Plan:
    """As `preempting`."""
    return preempting(running, waiting, free, budget, most, block)


def prompts_first(
    running: Running, waiting: Waiting, free: int, budget: int, most: int, block: int
) -> Plan:
    """`prefill_first` if it admits somebody; else answers alone, preempting where memory is out."""
    work = prefill_first(running, waiting, free, budget, most, block)
    known = {name for name, _, _ in running}
    if work and work[0][0] not in known:
        return Plan(work, [])
    return preempting(running, [], free, budget, most, block)
