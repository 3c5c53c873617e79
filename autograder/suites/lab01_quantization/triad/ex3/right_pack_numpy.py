"""NumPy's packbits with the lowest bit first."""

import numpy as np
import torch


def pack_codes(codes, bits):
    flat = codes.reshape(-1, 1).numpy()
    digits = (flat >> np.arange(bits, dtype=np.uint8)) & 1
    return torch.from_numpy(np.packbits(digits.astype(np.uint8).ravel(), bitorder="little"))
