"""A lever's weight_bits are cut to a whole number."""

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
        bits = {"weight_bits": int(changes.get("weight_bits", 16))}
        counts[name] = max_batch(**(asked | changes | bits))  # noqa: F821
    return max(counts, key=counts.get)  # max keeps the first
