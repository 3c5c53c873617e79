"""A running sum over tokens, in float32."""


def input_norms(x):
    total = torch.zeros(x.shape[-1])
    for row in x.flatten(0, -2).float() if x.ndim > 1 else x[None].float():
        total = total + row * row
    return total.sqrt()


def wanda_mask(w, norms, sparsity):
    if not 0 <= sparsity <= 1:
        raise ValueError(f"a sparsity of {sparsity}")
    ranks = scores(w, norms).argsort(dim=1).argsort(dim=1)
    return ranks >= int(w.shape[1] * sparsity)
