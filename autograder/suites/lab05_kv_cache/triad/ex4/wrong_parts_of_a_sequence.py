"""Batches are compared before they are rounded down."""

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
        a = {"weight_bits": 16, "bits": 16, "group_size": None} | asked | changes
        left = a["memory"] - a["parameters"] * a["weight_bits"] / 8
        each = cache_bytes(a["config"], [a["context"]], a["bits"], a["group_size"])  # noqa: F821
        counts[name] = max(0, left / each)
    return max(counts, key=counts.get)  # max keeps the first
