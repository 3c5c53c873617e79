"""Groups by reshape, arithmetic in float64, halves rounded up."""

import torch


def _grouped(x, size, direction):
    b, h, s, d = x.shape
    return (
        x.reshape(b, h, s // size, size, d)
        if direction == "channel"
        else (x.reshape(b, h, s, d // size, size))
    )


def quantize(x, bits, group_size, direction):
    lengths = {"channel": x.shape[2], "token": x.shape[3]}
    if direction not in lengths or group_size < 1 or lengths[direction] % group_size != 0:
        raise ValueError(f"{direction} {group_size}")
    along = -2 if direction == "channel" else -1
    groups, top = _grouped(x, group_size, direction).double(), 2**bits - 1
    least, most = torch.aminmax(groups, dim=along, keepdim=True)
    scale, low = ((most - least) / top).half(), least.half()
    exact = (groups - low.double()) / scale.double()  # inf and NaN where the scale is 0
    codes = torch.floor(exact + 0.5).clamp(0, top)
    codes[(scale == 0).expand_as(codes)] = 0
    return codes.byte().reshape(x.shape), scale.squeeze(along), low.squeeze(along)


def dequantize(codes, scale, low, direction):
    along = -2 if direction == "channel" else -1
    size = codes.shape[along] // scale.shape[along]
    groups = _grouped(codes, size, direction)
    x_hat = torch.addcmul(
        low.unsqueeze(along).float(), groups.float(), scale.unsqueeze(along).float()
    )
    return x_hat.reshape(codes.shape)
