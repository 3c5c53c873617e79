"""Signs by parity of common bits; Python's own generator; patterns of names."""

import random
import re


def hadamard(n):
    if n not in [2**i for i in range(40)]:
        raise ValueError(n)
    i = torch.arange(n)
    both = i[:, None] & i
    parity = torch.zeros_like(both)
    while both.any():
        parity ^= both & 1
        both >>= 1
    return (1 - 2 * parity).double() / n**0.5


def random_rotation(n, seed):
    q = hadamard(n)
    draw = random.Random(seed)
    return q * torch.tensor([draw.choice((-1.0, 1.0)) for _ in range(n)], dtype=torch.float64)


GAIN = [
    (r"(model\.layers\.\d+)\.self_attn\.[qkv]_proj\.weight", r"\1.input_layernorm.weight"),
    (r"(model\.layers\.\d+)\.mlp\.(?:gate|up)_proj\.weight", r"\1.post_attention_layernorm.weight"),
    (r"lm_head\.weight", "model.norm.weight"),
]


def absorb_norms(state):
    out = dict(state)
    for name, tensor in state.items():
        if re.search(r"norm\.weight$", name):
            out[name] = torch.ones_like(tensor)
        for pattern, norm in GAIN:
            if re.fullmatch(pattern, name):
                gain = state[re.sub(pattern, norm, name)]
                out[name] = tensor.double().mul(gain.double()).to(tensor.dtype)
    return out


def rotate(state, q):
    out = {}
    for name, t in state.items():
        wide = t.double()
        if re.search(r"(o_proj|down_proj)\.weight$", name):
            wide = torch.einsum("ij,ik->jk", q, wide)
        elif re.search(r"(o_proj|down_proj)\.bias$", name) or wide.dim() > 1:
            wide = torch.tensordot(wide, q, dims=1)
        out[name] = wide.to(t.dtype)
    return out


def peaks(x):
    x = x.double()
    rms = torch.linalg.vector_norm(x, dim=-1) / x.shape[-1] ** 0.5
    top = x.abs().max(-1).values if x.numel() else torch.zeros(x.shape[:-1], dtype=torch.float64)
    return torch.where(rms > 0, top / rms.clamp(min=torch.finfo(torch.float64).tiny), 0.0)
