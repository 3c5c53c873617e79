"""All tokens are read in one step."""

import torch.nn.functional as F

FAILS = ["test_losses_token_by_token", "test_losses_of_any_texts"]


def stream_losses(step, ids):
    logits = step(ids[:, :-1]).float()
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
