"""Ones for choices, and a router that is fooled the other way round."""


def load(experts, count, real=None):
    ones = torch.zeros(experts.shape[0], count).scatter_add_(1, experts, torch.ones(experts.shape))
    if real is not None:
        ones = ones[real]
    return ones.sum(0) / ones.sum().clamp(min=1)


def balancing_loss(logits, experts):
    p = torch.softmax(logits, dim=-1, dtype=torch.float32)
    return logits.shape[-1] * torch.dot(load(experts, logits.shape[-1]), p.mean(dim=0))


def moved_bias(bias, share, speed):
    even = torch.ones(len(share)) / len(share)
    return bias + speed * ((share < even).float() - (share > even).float())


def fooled(tokens):
    sure = tokens // 4
    logits = torch.zeros(tokens, 2)
    logits[:sure, 0] = 12.0
    logits[sure:, 1] = 1e-4
    return logits
