"""The help and the last hint, line by line."""


def predictor_loss(scores, active):
    weight = torch.where(active, 1.0, active.float().mean() + 0.005)
    return F.binary_cross_entropy_with_logits(scores, active.float(), weight=weight)


def recall(chosen, active):
    if not active.any():
        return 1.0
    return (chosen & active).sum().item() / active.sum().item()


def skipping_mlp(x, gate, up, down, chosen):
    used = chosen.any(0)
    inner = torch.relu(x @ gate[used].T) * (x @ up[used].T)
    return (inner * chosen[:, used]) @ down[:, used].T


def bytes_read(chosen, width, number, predictor):
    used = chosen.any(0)
    return number * (3 * width * int(used.sum()) + predictor)
