"""The hints, line by line."""


def hadamard(n):
    q, size = torch.ones(1, 1, dtype=torch.float64), 1
    while size < n:
        q = torch.cat([torch.cat([q, q], 1), torch.cat([q, -q], 1)])
        size *= 2
    if size != n:
        raise ValueError(f"n={n}")
    return q / n**0.5


def random_rotation(n, seed):
    q = hadamard(n)
    generator = torch.Generator().manual_seed(seed)
    return q * (torch.randint(0, 2, (n,), generator=generator) * 2.0 - 1.0)


def absorb_norms(state):
    new = {name: tensor.clone() for name, tensor in state.items()}
    readers = {"lm_head.weight": "model.norm.weight"}
    for name in state:
        layer = name.rsplit(".", 3)[0]
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            readers[name] = f"{layer}.input_layernorm.weight"
        if name.endswith(("gate_proj.weight", "up_proj.weight")):
            readers[name] = f"{layer}.post_attention_layernorm.weight"
    for reader, norm in readers.items():
        w = state[reader]
        new[reader] = (w.double() * state[norm].double()).to(w.dtype)
        new[norm] = torch.ones_like(state[norm])
    return new


def rotate(state, q):
    new = {}
    for name, tensor in state.items():
        part, kind = name.split(".")[-2:]
        wide = tensor.double()
        if part in ("o_proj", "down_proj"):
            wide = q.T @ wide if kind == "weight" else wide @ q
        elif part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj") and kind == "weight":
            wide = wide @ q
        elif part in ("embed_tokens", "lm_head"):
            wide = wide @ q
        new[name] = wide.to(tensor.dtype).clone()
    return new


def peaks(x):
    x = x.double()
    rms = x.square().mean(-1).sqrt()
    peak = x.abs().amax(-1)
    return torch.where(peak == 0, peak, peak / rms)
