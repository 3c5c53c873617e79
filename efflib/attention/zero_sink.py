"""Softmax with an extra zero: a head may attend to nothing.

    p_j = exp(s_j) / (1 + sum_k exp(s_k))

The weights sum to less than 1, so a head with nothing to say need not put its weight on some
token, and no attention sink has to form. It is the plain softmax over one more key whose score
and value are 0, and that is how it is computed here: a zero key is put before the others.
Source: Xiao et al. 2023 (arXiv:2309.17453), section 3.3 ("SoftMax-off-by-One", "zero sink");
Miller 2023, "Attention is off by one".
"""

import torch.nn.functional as F
from torch import Tensor

from efflib.models.llama import AttentionFn


def with_zero(attention: AttentionFn) -> AttentionFn:
    """`attention` with the extra zero in its softmax; for `Llama.set_attention`.

    Raises ValueError for what is no function, such as the name of one.
    """
    if not callable(attention):
        raise ValueError(f"attention must be a function of (q, k, v, mask), got {attention!r}")

    def zero_sink(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        k, v = (F.pad(x, (0, 0, 1, 0)) for x in (k, v))  # [B, Hkv, 1 + S, d]
        mask = F.pad(mask, (1, 0), value=True)  # [T, 1 + S]
        return attention(q, k, v, mask)

    return zero_sink
