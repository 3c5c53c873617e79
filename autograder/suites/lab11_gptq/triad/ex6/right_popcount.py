"""Signs of common bits; columns with random signs; names written out layer by layer."""


def hadamard(n):
    if n not in [2**i for i in range(40)]:
        raise ValueError(f"no power of two: {n}")
    common = torch.arange(n)[:, None] & torch.arange(n)
    odd = torch.zeros(n, n, dtype=torch.int64)
    while common.any():
        odd ^= common & 1
        common = common >> 1
    return (1.0 - 2.0 * odd.double()) * n**-0.5


def random_rotation(n, seed):
    g = torch.Generator()
    g.manual_seed(seed)
    return (
        hadamard(n) @ torch.diag(torch.where(torch.rand(n, generator=g) < 0.5, -1.0, 1.0)).double()
    )


def layers_of(state):
    return 1 + max(int(name.split(".")[2]) for name in state if name.startswith("model.layers."))


def absorb_norms(state):
    new = dict(state)

    def move(norm, readers):
        gain = new[norm].double()
        for reader in readers:
            w = new[reader]
            new[reader] = torch.einsum("oi,i->oi", w.double(), gain).to(w.dtype)
        new[norm] = torch.ones_like(new[norm])

    for i in range(layers_of(state)):
        at = f"model.layers.{i}."
        heads = [f"{at}self_attn.{n}_proj.weight" for n in "qkv"]
        move(f"{at}input_layernorm.weight", heads)
        neurons = [f"{at}mlp.{n}_proj.weight" for n in ("gate", "up")]
        move(f"{at}post_attention_layernorm.weight", neurons)
    move("model.norm.weight", ["lm_head.weight"])
    return {name: tensor.clone() for name, tensor in new.items()}


def rotate(state, q):
    new = {name: tensor.clone() for name, tensor in state.items()}

    def turn(name, how):
        if name in new:
            new[name] = how(new[name].double()).to(new[name].dtype)

    turn("model.embed_tokens.weight", lambda w: w @ q)
    turn("lm_head.weight", lambda w: w @ q)
    for i in range(layers_of(state)):
        at = f"model.layers.{i}."
        for reader in ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up"):
            turn(f"{at}{reader}_proj.weight", lambda w: w @ q)
        for writer in ("self_attn.o", "mlp.down"):
            turn(f"{at}{writer}_proj.weight", lambda w: (w.T @ q).T)
            turn(f"{at}{writer}_proj.bias", lambda b: q.T @ b)
    return new


def peaks(x):
    x = x.to(torch.float64)
    size = x.abs().amax(-1)
    rms = torch.linalg.vector_norm(x, dim=-1) / math.sqrt(x.shape[-1])
    return size / torch.where(rms == 0, torch.ones_like(rms), rms)
