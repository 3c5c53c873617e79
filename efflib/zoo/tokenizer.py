"""The zoo's tokenizer: byte-level BPE, 2048 entries, trained on the training documents only.

Every byte is in the vocabulary, so any text round-trips. ``<s>`` (id 0) is the begin token: it
stands once, at position 0 of every training and evaluation sample, and nowhere in the text.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from efflib.zoo import corpus
from efflib.zoo.checkpoints import FOLDER, TOKENIZER, record, verify

BEGIN, BEGIN_ID = "<s>", 0
VOCAB_SIZE = 2048


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Train a byte-level BPE (Sennrich et al., 2016, on the bytes of GPT-2's pre-tokens)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BEGIN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_and_save(folder: Path = FOLDER) -> None:
    """Train the zoo's tokenizer on both splits, write it into `folder` and record its hash."""
    texts = [t for split in corpus.SPLITS for t in corpus.documents(split, False).values()]
    train_tokenizer(texts).save(str(folder / TOKENIZER))
    record(folder)


@cache
def load_tokenizer(folder: Path = FOLDER) -> Tokenizer:
    """The zoo's tokenizer; ``encode(text).ids`` has no begin token: prepend `BEGIN_ID`.

    A text that spells "<s>" is encoded letter by letter, so only code puts a begin token.

    Raises:
        CorruptCheckpoint: the shipped file is missing or damaged.
    """
    tokenizer = Tokenizer.from_file(str(verify(TOKENIZER, folder)))
    tokenizer.encode_special_tokens = True
    return tokenizer


@cache
def text_ids(split: corpus.Split, held_out: bool) -> Tensor:
    """The ids of a split's documents one after the other, without begin tokens. [N] int64

    The tensor is shared between callers: index it, do not write to it.
    """
    texts = list(corpus.documents(split, held_out).values())
    encoded = load_tokenizer().encode_batch(texts)
    return torch.tensor([i for e in encoded for i in e.ids])
