"""The help and the last hint, line by line."""


def load(experts, count, real=None):
    if real is not None:
        experts = experts[real]
    counts = torch.bincount(experts.flatten(), minlength=count)
    return counts / max(1, experts.numel())


def balancing_loss(logits, experts):
    count = logits.shape[1]
    return count * (load(experts, count) * logits.float().softmax(-1).mean(0)).sum()


def moved_bias(bias, share, speed):
    return bias + speed * torch.sign(torch.tensor(1 / len(share)) - share)


def fooled(tokens):
    first = math.ceil(0.75 * tokens)
    return torch.tensor([[0.001, 0.0]] * first + [[0.0, 30.0]] * (tokens - first))
