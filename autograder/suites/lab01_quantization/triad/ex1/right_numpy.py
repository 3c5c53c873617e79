"""NumPy in float64: rint takes ties to even, as torch.round does."""

import numpy as np
import torch


def quantize(x, scale, zero, bits, symmetric):
    top = 2 ** (bits - 1) - 1
    low, high = (-top, top) if symmetric else (0, 2**bits - 1)
    steps = np.rint(x.double().numpy() / scale.double().numpy()) + zero.numpy()
    codes = torch.from_numpy(np.asarray(np.clip(steps, low, high)))
    return codes.reshape(x.shape).to(torch.int8 if symmetric else torch.uint8)


def dequantize(codes, scale, zero):
    values = scale.double() * (codes.double() - zero.double())
    return values.float()
