"""Each lever acts on top of those before it."""

FAILS = ["test_levers_by_hand"]


def best_lever(
    config: dict, parameters: int, memory: int, context: int, levers: dict[str, dict]
) -> str:
    """The name of the lever with the largest batch, the first of equal ones."""
    if not levers:
        raise ValueError("no levers")
    asked = {"config": config, "parameters": parameters, "memory": memory, "context": context}
    counts = {}
    for name, changes in levers.items():
        asked |= changes
        counts[name] = max_batch(**asked)  # noqa: F821
    return max(counts, key=counts.get)  # max keeps the first
