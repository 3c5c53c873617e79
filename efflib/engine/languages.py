"""Tokens of a text, text of tokens, and a conversation as tokens: of the zoo, or of a checkpoint.

The models of the zoo continue text and were never taught to answer: there a conversation is its
lines one after the other, "user: ..." and "assistant:".  A checkpoint of Hugging Face brings its
own template.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from efflib import zoo
from efflib.models.checkpoint import from_pretrained
from efflib.models.llama import Llama

Message = tuple[str, str]  # role, content


class Language(NamedTuple):
    """What a server needs to know of a model's tokens."""

    encode: Callable[[str], list[int]]  # with a begin token, if there is one
    decode: Callable[[Sequence[int]], str]
    chat: Callable[[Sequence[Message]], list[int]]
    stop_ids: frozenset[int]  # that end an answer
    chat_stops: tuple[str, ...] = ()  # words that end a turn


def lines(messages: Sequence[Message]) -> str:
    """A conversation as text that goes on with the answer."""
    return "".join(f"{role}: {content}\n" for role, content in messages) + "assistant:"


def of_the_zoo() -> Language:
    """The zoo's tokenizer; its texts have no end token."""
    tokenizer = zoo.load_tokenizer()

    def encode(text: str) -> list[int]:
        return [zoo.BEGIN_ID, *tokenizer.encode(text).ids]

    return Language(
        encode,
        lambda ids: tokenizer.decode(list(ids)),
        lambda messages: encode(lines(messages)),
        frozenset(),
        ("\nuser:",),
    )


def of_a_folder(folder: Path) -> Language:
    """The tokenizer beside a checkpoint.  Raises ValueError if there is none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as fault:
        raise ValueError(f"{folder} has no tokenizer that transformers reads: {fault}") from fault

    def chat(messages: Sequence[Message]) -> list[int]:
        if tokenizer.chat_template is None:
            return tokenizer.encode(lines(messages))
        told = [{"role": role, "content": content} for role, content in messages]
        text = tokenizer.apply_chat_template(told, add_generation_prompt=True, tokenize=False)
        return tokenizer.encode(text, add_special_tokens=False)

    ends = tokenizer.eos_token_id
    return Language(
        tokenizer.encode,
        lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
        chat,
        frozenset() if ends is None else frozenset([ends]),
        ("\nuser:",) if tokenizer.chat_template is None else (),
    )


def load(name: str) -> tuple[Llama, Language]:
    """A model of the zoo by name, or a folder with a checkpoint in Llama's layout.

    Raises ValueError for anything else, FileNotFoundError for a file that is missing there.
    """
    if name in zoo.names():
        return zoo.load(name), of_the_zoo()
    folder = Path(name)
    if not folder.is_dir():
        known = ", ".join(zoo.names())
        raise ValueError(f"{name!r} is no folder, and not in the zoo ({known})")
    return from_pretrained(folder), of_a_folder(folder)
