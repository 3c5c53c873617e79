"""The context from two leads in seconds, FLOPs / peak less bytes / bandwidth."""


def ridge_context(config: dict, peak: float, bandwidth: float, kv_bits: float = 16) -> float:
    ridge(peak, bandwidth)  # refuses what is no machine

    def lead(context: int) -> float:
        two = step_bytes(config, 1, context, 2, 16, kv_bits)
        each = two - step_bytes(config, 1, context, 1, 16, kv_bits)
        return step_flops(config, 1, context) / peak - each / bandwidth

    first, second = lead(0), lead(1)
    if second >= first:
        return math.inf
    return first / (first - second) if first > 0 else 0.0
