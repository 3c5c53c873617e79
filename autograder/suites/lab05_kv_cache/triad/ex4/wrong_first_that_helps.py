"""The first lever that is better than nothing."""

FAILS = ["test_levers_by_hand"]


def best_lever(
    config: dict, parameters: int, memory: int, context: int, levers: dict[str, dict]
) -> str:
    """The name of the lever with the largest batch, the first of equal ones."""
    if not levers:
        raise ValueError("no levers")
    asked = {"config": config, "parameters": parameters, "memory": memory, "context": context}
    counts = {name: max_batch(**(asked | changes)) for name, changes in levers.items()}  # noqa: F821
    before = max_batch(**asked)  # noqa: F821
    return next((name for name, n in counts.items() if n > before), next(iter(counts)))
