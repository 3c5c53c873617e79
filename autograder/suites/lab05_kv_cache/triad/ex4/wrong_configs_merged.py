"""A lever's config is laid over the first: fields that it has not stay."""

FAILS = ["test_levers_by_hand", "test_levers_against_brute_force"]


def best_lever(
    config: dict, parameters: int, memory: int, context: int, levers: dict[str, dict]
) -> str:
    """The name of the lever with the largest batch, the first of equal ones."""
    if not levers:
        raise ValueError("no levers")
    asked = {"config": config, "parameters": parameters, "memory": memory, "context": context}
    counts = {}
    for name, changes in levers.items():
        config_of = {"config": config | changes.get("config", {})}
        counts[name] = max_batch(**(asked | changes | config_of))  # noqa: F821
    return max(counts, key=counts.get)  # max keeps the first
