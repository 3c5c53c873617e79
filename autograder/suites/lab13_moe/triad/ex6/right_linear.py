"""F.linear, index_select, and where in place of a product."""


def predictor_loss(scores, active):
    share = active.sum() / active.numel() + 0.005
    losses = F.binary_cross_entropy_with_logits(scores, active.to(scores.dtype), reduction="none")
    return torch.where(active, losses, losses * share).mean()


def recall(chosen, active):
    total = torch.count_nonzero(active).item()
    if total == 0:
        return 1.0
    return torch.count_nonzero(torch.logical_and(chosen, active)).item() / total


def skipping_mlp(x, gate, up, down, chosen):
    rows = torch.nonzero(chosen.sum(0))[:, 0]
    inner = F.relu(F.linear(x, gate.index_select(0, rows))) * F.linear(x, up.index_select(0, rows))
    inner = torch.where(chosen.index_select(1, rows), inner, torch.zeros_like(inner))
    return F.linear(inner, down.index_select(1, rows))


def bytes_read(chosen, width, number, predictor):
    neurons = int((chosen.sum(0) > 0).sum())
    return number * predictor + 3 * number * width * neurons
