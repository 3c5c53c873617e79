"""The rotary embedding: a query or key at position p is turned by angles that grow with p.

    the pair (x_i, x_{i+d/2}) turns by the angle  p f_i,    f_i = theta^(-2i/d)

so the product of a query and a key depends on the distance of their positions only.
Source: Su et al. (2021), section 3.4.2, in Hugging Face's pairing.

"llama3" slows the low frequencies down, so that a model trained on L tokens reads factor times as
many. With w_i = 2 pi / f_i tokens a turn and the share s_i = (L / w_i - low) / (high - low),
between 0 and 1:

    f'_i = s_i f_i + (1 - s_i) f_i / factor

What turns often within L tokens stays as it is, what does not complete a turn slows down by the
whole factor. Source: ``modeling_rope_utils.py`` of transformers, for Llama 3.1.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

Turns = tuple[Tensor, Tensor]  # cosines and sines of the angles, [T, d/2] or [B, 1, T, d/2]


@dataclass(frozen=True)
class RopeScaling:
    """rope_type "llama3" of a ``config.json``, under the same names."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        if not (self.factor >= 1 and 0 < self.low_freq_factor < self.high_freq_factor):
            raise ValueError(f"need factor >= 1 and 0 < low < high frequency factor, got {self}")
        if not self.original_max_position_embeddings >= 1:
            raise ValueError(f"need at least one original position, got {self}")


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    """Where half precision does not serve: squares that overflow, angles of large positions."""
    return torch.promote_types(dtype, torch.float32)


def turns(
    positions: Tensor, d: int, theta: float, dtype: torch.dtype, scaling: RopeScaling | None = None
) -> Turns:
    """Cosine and sine of every pair's angle at positions [T] or [B, T], for `turn`.

    Raises ValueError unless d is even and theta positive.
    """
    if d < 2 or d % 2 or not theta > 0:
        raise ValueError(f"need an even {d=} >= 2 and {theta=} > 0")
    precise = at_least_fp32(dtype)
    frequency = theta ** (-torch.arange(0, d, 2, device=positions.device, dtype=precise) / d)
    if scaling is not None:
        per_turn = 2 * math.pi / frequency  # tokens
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        share = (scaling.original_max_position_embeddings / per_turn - low) / (high - low)
        share = share.clamp(0, 1)
        frequency = share * frequency + (1 - share) * frequency / scaling.factor
    angle = positions[..., None].to(precise) * frequency  # [T, d/2] or [B, T, d/2]
    if positions.ndim == 2:
        angle = angle[:, None]  # one for all heads
    return angle.cos().to(dtype), angle.sin().to(dtype)


def turn(x: Tensor, by: Turns) -> Tensor:
    """x [B, H, T, d], each pair turned by its angle."""
    cos, sin = (part.to(x.dtype) for part in by)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def rotate(
    x: Tensor, positions: Tensor, theta: float, scaling: RopeScaling | None = None
) -> Tensor:
    """x [B, H, T, d] turned as at positions [T] or [B, T]."""
    return turn(x, turns(positions, x.shape[-1], theta, x.dtype, scaling))
