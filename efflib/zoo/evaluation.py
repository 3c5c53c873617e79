"""Perplexity of a language model on the zoo's held-out text.

    perplexity = exp( mean over scored tokens of -ln p(token | what the model sees) )

What the model sees is the whole question; implementations differ in it. Here:

1. the held-out text of the split is one stream of N ids, documents in the order of their names;
2. SEGMENTS equal segments of L = floor(tokens / SEGMENTS) ids start at the ids
   floor(i N / SEGMENTS): evenly spaced, so a small `tokens` still sees every part of the text;
3. in each segment, window w holds the ids from w * stride on. The model reads `<s>` and the first
   context - 1 of them and predicts context of them; the first window scores all of these,
   every later one only the last `stride`, which have at least context - stride - 1 ids before
   them. The last window is shorter where the segment ends.

Every id of a segment is scored exactly once. ``stride == context`` is the cheap variant with
disjoint windows; a small stride gives every token a long context and a lower perplexity.
Perplexities are comparable between models of one tokenizer; `bits_per_byte` also between
tokenizers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims
from efflib.zoo import corpus
from efflib.zoo.tokenizer import BEGIN_ID, load_tokenizer, text_ids

SEGMENTS = 16
SAMPLE_TOKENS = 16384  # the default: seconds on a laptop, within some percent of the whole text


def logits_of(model: nn.Module, ids: Tensor) -> Tensor:
    """The logits [B, T, V] of our models and of Hugging Face's, whose output holds them."""
    output = model(ids)
    return output if isinstance(output, Tensor) else output.logits


def held_out_segments(split: corpus.Split, tokens: int | None = None) -> Tensor:
    """SEGMENTS evenly spaced pieces of the held-out text. [SEGMENTS, L] int64

    Raises:
        ValueError: if `tokens` is below SEGMENTS or above the split's length.
    """
    text = text_ids(split, held_out=True)
    tokens = len(text) if tokens is None else tokens
    if not SEGMENTS <= tokens <= len(text):
        raise ValueError(f"tokens={tokens} must be in [{SEGMENTS}, {len(text)}] for {split!r}")
    starts = torch.arange(SEGMENTS) * len(text) // SEGMENTS
    return text[starts[:, None] + torch.arange(tokens // SEGMENTS)]


@torch.no_grad()
def token_losses(model: nn.Module, text: Tensor, context: int, stride: int) -> Tensor:
    """-ln p of every token of text [S, L], by the windows described above. [S, L] float32

    Raises:
        ValueError: unless 1 <= stride <= context.
    """
    expect_dims("[S, L]", text=text)
    if not 1 <= stride <= context:
        raise ValueError(f"stride={stride} must be in [1, context={context}]")
    device = next(model.parameters()).device
    begin = torch.full((len(text), 1), BEGIN_ID)
    losses, scored, start = [], 0, 0
    while scored < text.shape[1]:
        window = text[:, start : start + context]
        ids = torch.cat([begin, window[:, :-1]], dim=1).to(device)
        logits = logits_of(model, ids)[:, scored - start :].float()  # [S, new, V]
        targets = window[:, scored - start :].to(device)  # [S, new]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        losses.append(loss.view_as(targets).cpu())
        scored = start + window.shape[1]
        start += stride
    return torch.cat(losses, dim=1)


def count_bytes(text: Tensor) -> int:
    """The UTF-8 bytes that ids spell: in byte-level BPE, one character of an entry is one byte."""
    vocabulary = load_tokenizer()
    return sum(len(vocabulary.id_to_token(i)) for i in text.flatten().tolist())


def perplexity(
    model: nn.Module,
    split: corpus.Split = "code",
    tokens: int | None = SAMPLE_TOKENS,
    context: int = 256,
    stride: int = 128,
) -> float:
    """The model's perplexity on `tokens` held-out tokens (None: all) of a split.

    Works with any module that maps ids [B, T] to logits [B, T, V], or to an object with
    ``.logits``, over the zoo's vocabulary. The model is used as it is: call ``eval()`` before.
    """
    losses = token_losses(model, held_out_segments(split, tokens), context, stride)
    return math.exp(losses.double().mean().item())


def bits_per_byte(
    model: nn.Module,
    split: corpus.Split = "code",
    tokens: int | None = SAMPLE_TOKENS,
    context: int = 256,
    stride: int = 128,
) -> float:
    """As `perplexity`, in bits for each UTF-8 byte of the scored text: free of the tokenizer."""
    text = held_out_segments(split, tokens)
    losses = token_losses(model, text, context, stride)
    return losses.double().sum().item() / math.log(2) / count_bytes(text)
