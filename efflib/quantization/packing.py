"""Packing: codes of b bits side by side in 32-bit words, and a linear layer that stores them so.

A word holds 32 / b codes; field i of a word is its bits b i .. b i + b - 1, the lowest first:

    word = sum_i  code[order[i]] 2^(b i)

`order` says which of the eight 4-bit codes stands in which field.  Where formats differ:

- PLAIN, 0 1 2 3 4 5 6 7, along the inputs K: W [N, K] -> words [N, ceil(K / 8)].  So `W4A16Linear`
  and compressed-tensors (llm-compressor, vLLM), which packs signed codes after adding 8.
- AWQ, 0 2 4 6 1 3 5 7, along the outputs N: W [N, K] -> words [K, N / 8] (AutoAWQ "GEMM").  A GPU
  takes fields in pairs, i and i + 4, by one mask and one shift: (w >> 4 j) & 0x000F000F.  With this
  order the two are neighbours, codes 2j and 2j + 1.
- GPTQ packs PLAIN along K, but transposed: words [K / 8, N].  llm-awq's newer kernel uses 16-bit
  words and interleaves four rows.  Not here.

Words are int32, as torch has few operations on uint32: the top field sets the sign, and unpacking
masks it away.
"""

import copy
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_integers, expect_keys, expect_whole
from efflib.quantization.linear import QuantizedWeight, dequantize_weight

WORD = 32
PLAIN = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


def expect_word_bits(bits: int) -> None:
    """Raises ValueError for codes that do not fill a word."""
    if bits not in (1, 2, 4, 8):
        raise ValueError(f"bits must be 1, 2, 4 or 8, so that words are filled, got {bits!r}")


def _fields(bits: int, order: tuple[int, ...] | None) -> tuple[int, ...]:
    expect_word_bits(bits)
    order = tuple(range(WORD // bits)) if order is None else order
    if sorted(order) != list(range(WORD // bits)):
        raise ValueError(f"order {order} is no order of the {WORD // bits} codes of a word")
    return order


def pack(codes: Tensor, bits: int = 4, order: tuple[int, ...] | None = None) -> Tensor:
    """Codes [..., M] in 0 .. 2^bits - 1 -> words [..., ceil(M bits / 32)] int32.

    bits: 1, 2, 4 or 8; order: see above, default plain.  The last word is filled with codes 0.
    Raises ValueError for other bits, an order that is none, or codes out of range.
    """
    order = _fields(bits, order)
    expect_integers(codes=codes)
    if codes.ndim == 0:
        raise ValueError("codes must be [..., M], got a single number")
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < 2**bits:
        low, high = int(codes.min()), int(codes.max())
        raise ValueError(f"codes must be in [0, {2**bits - 1}], got {low} to {high}")
    codes = F.pad(codes.to(torch.int32), (0, -codes.shape[-1] % len(order)))
    codes = codes.unflatten(-1, (-1, len(order)))  # [..., words, codes of a word]
    words = torch.zeros(codes.shape[:-1], dtype=torch.int32, device=codes.device)
    for i, j in enumerate(order):
        words |= codes[..., j] << (bits * i)
    return words


def unpack(
    words: Tensor, length: int, bits: int = 4, order: tuple[int, ...] | None = None
) -> Tensor:
    """Words [..., ceil(length bits / 32)] int32 -> codes [..., length] uint8: undoes `pack`.

    Raises ValueError as `pack`, or if there are not as many words as `length` codes need.
    """
    order = _fields(bits, order)
    expect_whole(length=length)
    if words.dtype != torch.int32 or words.shape[-1] != math.ceil(length / len(order)):
        raise ValueError(
            f"{length} codes of {bits} bits take {math.ceil(length / len(order))} int32 words, "
            f"got {words.dtype} {tuple(words.shape)}"
        )
    codes = torch.empty((*words.shape, len(order)), dtype=torch.uint8, device=words.device)
    for i, j in enumerate(order):
        codes[..., j] = (words >> (bits * i)) & (2**bits - 1)
    return codes.flatten(-2)[..., :length]


def pack_awq(codes: Tensor) -> Tensor:
    """4-bit codes of W [N, K] -> AutoAWQ's `qweight` [K, N / 8].

    Zero points [N, n_groups] likewise give `qzeros` [n_groups, N / 8].
    Raises ValueError if 8 does not divide N: the format has no place for a filled word.
    """
    if codes.dim() != 2 or codes.shape[0] % 8:
        raise ValueError(f"AWQ packs along N, a multiple of 8; got codes {tuple(codes.shape)}")
    return pack(codes.T, 4, AWQ)


def unpack_awq(words: Tensor) -> Tensor:
    """AutoAWQ's `qweight` [K, N / 8] -> codes [N, K] uint8."""
    return unpack(words, 8 * words.shape[-1], 4, AWQ).T.contiguous()


def pack_compressed_tensors(codes: Tensor) -> Tensor:
    """Signed 4-bit codes -8 .. 7 of W [N, K] -> compressed-tensors' words [N, ceil(K / 8)]."""
    expect_integers(codes=codes)
    return pack(codes.to(torch.int32) + 8, 4, PLAIN)


class W4A16Linear(nn.Module):
    """A linear that stores 4-bit codes, and float16 scales and 4-bit zero points of its groups.

        y = x W_hat^T + b,      W_hat = s (q - z)  decoded in every call

    Weights 4 bits, activations as they come (16 bits on a GPU): less to read from memory, and here
    more to compute: slower than a dense product, and some hundred times slower than torch's int4
    kernel (`python benchmarks/quantization.py` measures it); speed needs a kernel that decodes
    inside the product.  K and the number of
    groups may be anything: words are filled up at the end of a row.

    qw: codes of `quantize_weight`, 4 bits, asymmetric, in groups or by channel; bias [N] or None.
    It takes codes and not a weight, because rounding twice is not rounding once: values of a grid
    that were clipped symmetrically sit at rounding ties, and may find another grid.
    float16 scales are off by 2^-11 of themselves, and by 2^-25 for s below 2^-14; s below 2^-25
    becomes 0.  Raises ValueError for a scale beyond 65504, or another kind of qw.
    """

    def __init__(self, qw: QuantizedWeight, bias: Tensor | None = None) -> None:
        super().__init__()
        if qw.bits != 4 or qw.symmetric or qw.granularity == "tensor":
            raise ValueError(
                "need 4 bits, asymmetric, groups or channels; got "
                f"bits={qw.bits}, symmetric={qw.symmetric}, granularity={qw.granularity!r}"
            )
        if qw.scale.max() > torch.finfo(torch.float16).max:
            raise ValueError(f"float16 cannot hold the scale {qw.scale.max().item():.6g}")
        if bias is not None and bias.shape != qw.shape[:1]:
            raise ValueError(f"bias must be [{qw.shape[0]}], got {tuple(bias.shape)}")
        self.shape, self.granularity = qw.shape, qw.granularity
        self.register_buffer("words", pack(qw.codes))  # [N, ceil(K / 8)]
        self.register_buffer("scale", qw.scale.half())  # [N, n_groups]
        self.register_buffer("zeros", pack(qw.zero.flatten()))  # [ceil(N n_groups / 8)]
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def decode(self) -> Tensor:
        """The weight [N, K], float32, that the codes stand for."""
        zero = unpack(self.zeros, self.scale.numel()).view(self.scale.shape).int()
        codes = unpack(self.words, self.shape[1])
        qw = QuantizedWeight(
            codes, self.scale.float(), zero, 4, self.granularity, self.shape, symmetric=False
        )
        return dequantize_weight(qw)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        return F.linear(x, self.decode().to(x.dtype), self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.shape[1]}, out_features={self.shape[0]}, {self.granularity}"


def stored_bytes(module: nn.Module) -> int:
    """Bytes of all parameters and buffers of a module, each counted once."""
    tensors = {id(t): t for t in [*module.parameters(), *module.buffers()]}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def w4a16(model: nn.Module, weights: Mapping[str, QuantizedWeight]) -> nn.Module:
    """A copy of the model with a `W4A16Linear` for each linear that weights {name: codes} names.

    Codes come from `quantize_weight`, or `awq_model.quantized_weights` of the folded model.
    Raises ValueError if a shape differs from the linear's, or there is none of that name.
    """
    model = copy.deepcopy(model)
    expect_keys(dict(model.named_modules()), weights=weights)
    for name, qw in weights.items():
        linear = model.get_submodule(name)
        if tuple(linear.weight.shape) != tuple(qw.shape):
            raise ValueError(f"{name} is {tuple(linear.weight.shape)}, its codes {tuple(qw.shape)}")
        model.set_submodule(name, W4A16Linear(qw, linear.bias))
    return model
