"""A Hadamard matrix whose rows and columns are shuffled besides, by kron; parts of names."""


def hadamard(n):
    power = int(n).bit_length() - 1
    if n <= 0 or 2**power != n:
        raise ValueError(f"{n} is not 1, 2, 4, 8 ...")
    q = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(power):
        q = torch.kron(q, torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) / 2**0.5)
    return q


def random_rotation(n, seed):
    q = hadamard(n)
    generator = torch.Generator().manual_seed(1000 + seed)
    for _ in range(2):
        signs = torch.randint(0, 2, (n,), generator=generator) * 2.0 - 1
        q = (q * signs)[torch.randperm(n, generator=generator)].T
    return q.contiguous()


def absorb_norms(state):
    new = {}
    for name, tensor in state.items():
        parts = name.split(".")
        if parts[-2].endswith("norm"):
            new[name] = torch.ones(tensor.shape, dtype=tensor.dtype)
            continue
        gain = None
        if parts[-2] in ("q_proj", "k_proj", "v_proj") and parts[-1] == "weight":
            gain = ".".join(parts[:3]) + ".input_layernorm.weight"
        if parts[-2] in ("gate_proj", "up_proj") and parts[-1] == "weight":
            gain = ".".join(parts[:3]) + ".post_attention_layernorm.weight"
        if name == "lm_head.weight":
            gain = "model.norm.weight"
        wide = tensor.double()
        new[name] = (wide if gain is None else wide @ torch.diag(state[gain].double())).to(
            tensor.dtype
        )
    return new


def rotate(state, q):
    out = {}
    for name, t in state.items():
        out[name] = t.clone()
        if "norm" in name:
            continue
        if "o_proj" in name or "down_proj" in name:
            out[name] = torch.tensordot(q, t.double(), dims=([0], [0])).to(t.dtype)
        elif name.endswith("weight"):
            out[name] = torch.tensordot(t.double(), q, dims=1).to(t.dtype)
    return out


def peaks(x):
    x = x.double()
    peak = x.abs().amax(-1) * math.sqrt(x.shape[-1]) / x.norm(dim=-1)
    return peak.nan_to_num(0.0)
