"""Sorts, and renormalizes a softmax over all by its logarithm."""


def route(logits, k, convention="mixtral", bias=None):
    tokens, count = logits.shape
    if not 0 < k <= count or convention not in {"mixtral", "switch", "deepseek"}:
        raise ValueError(f"{k} of {count}, {convention}")
    if bias is not None and convention != "deepseek":
        raise ValueError("a bias")
    s = logits.to(torch.float32)
    compared = s if bias is None else torch.sigmoid(s) + bias[None, :]
    experts = torch.argsort(compared, dim=1, descending=True, stable=True)[:, :k]
    if convention == "switch":
        return experts, F.softmax(s, dim=1).gather(1, experts)
    if convention == "mixtral":
        logs = F.log_softmax(s, dim=1).gather(1, experts)
    else:
        logs = F.logsigmoid(s).gather(1, experts)
    return experts, torch.exp(logs - torch.logsumexp(logs, 1, keepdim=True))
