"""Ones where a choice asks for an expert, and their cumulative sum: without a loop."""


def capacity(tokens, count, k, factor):
    fine = tokens >= 0 and count > 0 and k > 0 and factor >= 0 and factor != math.inf
    if not fine:
        raise ValueError("a number is out of range")
    return -int(-(tokens * k * factor / count) // 1)


def admitted(experts, places, order="tokens", real=None):
    if order not in {"tokens", "choices"} or places < 0:
        raise ValueError("order or places")
    tokens, k = experts.shape
    if tokens == 0:
        return experts.bool()
    asks = F.one_hot(experts)  # [T, k, E]
    if real is not None:
        asks = asks * real.view(-1, 1, 1)
    if order == "choices":
        asks = asks.transpose(0, 1)
    number = asks.reshape(tokens * k, -1).cumsum(0).reshape(asks.shape)
    kept = ((number <= places) & (asks == 1)).any(-1)
    return kept.T if order == "choices" else kept
