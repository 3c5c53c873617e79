"""What help and hints say, word for word."""


def max_batch(config, parameters, memory, context, weight_bits=16, bits=16, group_size=None):
    left = memory - parameters * weight_bits / 8
    each = cache_bytes(config, [context], bits, group_size)  # noqa: F821
    return int(max(0, left // each))


def crossover(config, parameters, weight_bits=16, bits=16, group_size=None):
    fits = parameters * weight_bits / 8 // bytes_per_token(config, bits, group_size)  # noqa: F821
    return int(fits) + 1


def best_lever(config, parameters, memory, context, levers):
    if len(levers) == 0:
        raise ValueError("no levers")
    counts = {}
    for name, changes in levers.items():
        arguments = {
            "config": config,
            "parameters": parameters,
            "memory": memory,
            "context": context,
        }
        arguments.update(changes)
        counts[name] = max_batch(**arguments)
    return max(counts, key=counts.get)
