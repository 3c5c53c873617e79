"""Each end divided by itself: hi / qmax - lo / qmax; floor(x + 1/2) for z."""

import torch


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    zeros = torch.zeros(lo.shape)
    low, high = torch.minimum(lo.float(), zeros), torch.maximum(hi.float(), zeros)
    if symmetric:
        scale = torch.stack([low.abs() / qmax, high / qmax]).amax(dim=0)
    else:
        scale = high / qmax - low / qmax
    scale = scale + (scale == 0)
    zero = zeros if symmetric else torch.floor(0.5 - low / scale)
    return scale, zero.to(torch.int32)
