"""torch's own norm, in float64."""


def input_norms(x):
    return torch.linalg.vector_norm(x.double(), dim=tuple(range(x.ndim - 1))).float()


def scores(w, norms):
    return (w.double() * norms.double()).abs().float()
