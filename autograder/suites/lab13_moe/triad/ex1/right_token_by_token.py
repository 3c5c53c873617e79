"""A loop over tokens, with Python's sort."""


def route(logits, k, convention="mixtral", bias=None):
    count = logits.shape[1]
    if convention not in ("mixtral", "switch", "deepseek") or not 1 <= k <= count:
        raise ValueError("out of range")
    if convention in ("mixtral", "switch") and bias is not None:
        raise ValueError("no bias here")
    experts = torch.zeros(len(logits), k, dtype=torch.int64)
    rows = []
    for t, row in enumerate(logits.float()):
        score = row.sigmoid() if convention == "deepseek" else row
        biased = score if bias is None else score + bias
        order = sorted(range(count), key=lambda e: -biased[e].item())[:k]
        experts[t] = torch.tensor(order)
        if convention == "mixtral":
            rows.append(torch.softmax(row[order], 0))
        elif convention == "switch":
            rows.append(torch.softmax(row, 0)[order])
        else:
            rows.append(score[order] / score[order].sum())
    gates = torch.stack(rows) if rows else logits.new_zeros(0, k, dtype=torch.float32)
    return experts, gates
