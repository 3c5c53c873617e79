"""The help and the last hint, line by line."""


def route(logits, k, convention="mixtral", bias=None):
    if k < 1 or k > logits.shape[1]:
        raise ValueError("k")
    if convention not in ["mixtral", "switch", "deepseek"]:
        raise ValueError("convention")
    if convention != "deepseek" and bias is not None:
        raise ValueError("bias")
    logits = logits.float()
    if convention == "mixtral":
        values, indices = logits.topk(k, dim=-1)
        return indices, values.softmax(-1)
    if convention == "switch":
        indices = logits.topk(k, dim=-1).indices
        scores = logits.softmax(-1)
        return indices, scores.gather(-1, indices)
    scores = logits.sigmoid()
    indices = (scores if bias is None else scores + bias).topk(k, dim=-1).indices
    gates = scores.gather(-1, indices)
    return indices, gates / gates.sum(-1, keepdim=True)
