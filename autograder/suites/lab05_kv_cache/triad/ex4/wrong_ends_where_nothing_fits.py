"""A lever with which nothing fits ends the search."""

FAILS = ["test_levers_against_brute_force"]


def best_lever(
    config: dict, parameters: int, memory: int, context: int, levers: dict[str, dict]
) -> str:
    """The name of the lever with the largest batch, the first of equal ones."""
    if not levers:
        raise ValueError("no levers")
    asked = {"config": config, "parameters": parameters, "memory": memory, "context": context}
    counts = {}
    for name, changes in levers.items():
        counts[name] = max_batch(**(asked | changes))  # noqa: F821
        if not counts[name]:
            break
    return max(counts, key=counts.get)  # max keeps the first
