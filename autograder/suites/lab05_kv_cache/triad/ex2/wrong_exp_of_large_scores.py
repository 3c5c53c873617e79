"""exp of the scores as they are: large ones are infinite, and inf / inf becomes 0."""

from torch import Tensor

FAILS = ["test_attention_by_hand"]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over the slots of mask [B, T, S]. [B, H, T, d], dtype of q"""
    times = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(times, dim=1) for x in (k, v))
    scores = q.float() @ k.mT / q.shape[-1] ** 0.5  # [B, H, T, S]
    powers = scores.exp() * mask[:, None]
    weights = (powers / powers.sum(-1, keepdim=True)).nan_to_num()
    return (weights @ v).to(q.dtype)
