"""What is asked of an engine, what it knows of a request, and what a step tells about it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from efflib.checks import expect_whole
from efflib.decoding.sampling import GREEDY, Sampling


class TooLong(ValueError):
    """A prompt and the tokens to come do not fit into what a request may have."""


LENGTH, STOP = "length", "stop"  # why an answer ends


class Request(NamedTuple):
    """A prompt of token ids, and how it is to be continued."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = GREEDY
    seed: int = 0  # of what is drawn: the same in any company
    stop_ids: frozenset[int] = frozenset()  # tokens that end the answer; they belong to it

    def checked(self, vocabulary: int) -> "Request":
        """Itself; raises ValueError that names what does not fit."""
        expect_whole(1, max_tokens=self.max_tokens)
        self.sampling.checked()
        if not self.prompt:
            raise ValueError("the prompt is empty: a model continues at least one token")
        for token in self.prompt:
            expect_whole(0, **{"a token of the prompt": token})
            if token >= vocabulary:
                raise ValueError(f"token {token} is not in the vocabulary of {vocabulary}")
        return self


class News(NamedTuple):
    """What a step tells about a request: its new tokens, and why it ended, if it did."""

    name: int
    tokens: list[int]
    finish: str | None


@dataclass
class State:
    """A request that waits or runs."""

    request: Request
    text: list[int]  # prompt and answer so far
    cached: int = 0  # of them with a key and a value
    gamma: int = 0  # how many proposals it gets
    generator: torch.Generator = field(default_factory=torch.Generator)

    @property
    def made(self) -> int:
        """Tokens of the answer so far."""
        return len(self.text) - len(self.request.prompt)

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.request.max_tokens - self.made

    def take(self, tokens: list[int]) -> tuple[list[int], str | None]:
        """Adds what a pass yielded, up to where the answer ends: what was added, why it ends."""
        for i, token in enumerate(tokens):
            self.text.append(token)
            if token in self.request.stop_ids:
                return tokens[: i + 1], STOP
            if not self.left:
                return tokens[: i + 1], LENGTH
        return tokens, None


def started(request: Request, gamma: int) -> State:
    """A request that has just come."""
    state = State(request, list(request.prompt), gamma=gamma)
    state.generator.manual_seed(request.seed)
    return state
