"""A call of a client: the requests that it makes of the engine, and their answers in OpenAI's form.

Whole, an answer is one object; streamed, it is chunks: for a chat first the role, then pieces of
text, then why it ended, and the usage if it was asked for.  Tokens are counted as they were
computed, up to the one that completed a stop word.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from efflib.engine.languages import Language
from efflib.engine.protocol import MOST_CHOICES, Common, Completion, Refused
from efflib.engine.requests import Request
from efflib.engine.words import Words
from efflib.engine.worker import FAULT, Stream


class Form(NamedTuple):
    """How a kind of call names its things."""

    whole: str  # the object of an answer
    chunk: str  # and of a piece of it
    prefix: str  # of its id
    param: str  # the field that a prompt comes in
    chat: bool


COMPLETION = Form("text_completion", "text_completion", "cmpl", "prompt", False)
CHAT = Form("chat.completion", "chat.completion.chunk", "chatcmpl", "messages", True)


@dataclass
class Call:
    """The requests of one HTTP request, and the text of each so far."""

    form: Form
    model: str
    streams: list[Stream]
    words: list[Words]
    queue: asyncio.Queue
    prompts: int  # tokens of the prompts, each counted once
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def told(self, kind: str, choices: list[dict]) -> dict:
        """An object with these choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    @property
    def usage(self) -> dict:
        made = sum(len(w.ids) for w in self.words)
        counts = {"prompt_tokens": self.prompts, "completion_tokens": made}
        return counts | {"total_tokens": self.prompts + made}


def prompts(asked: Completion, language: Language) -> list[list[int]]:
    """The prompts of a completion as tokens: one text, several, or ids."""
    given = asked.prompt
    if isinstance(given, str):
        return [language.encode(given)]
    if not given:
        raise Refused("prompt is empty", "prompt")
    if len({type(one) for one in given}) > 1:
        raise Refused("prompt is one text, several, ids, or several lists of ids", "prompt")
    if isinstance(given[0], int):
        return [given]
    return [language.encode(one) if isinstance(one, str) else one for one in given]


def call(
    asked: Common,
    prompts: list[list[int]],
    tokens: int,
    form: Form,
    stops: tuple[str, ...],
    language: Language,
    model: str,
) -> Call:
    """n requests for each prompt; the i-th of all draws with seed + i.  Raises Refused."""
    n, seed = asked.n or 1, asked.seed
    if len(prompts) * n > MOST_CHOICES:
        raise Refused(f"a call has at most {MOST_CHOICES} answers", form.param)
    if seed is None:
        seed = uuid.uuid4().int % 2**32
    queue: asyncio.Queue = asyncio.Queue()
    streams = []
    for i, prompt in enumerate(prompt for prompt in prompts for _ in range(n)):
        sampling, drawn = asked.sampling, (seed + i) % 2**63
        request = Request(tuple(prompt), tokens, sampling, drawn, language.stop_ids)
        streams.append(Stream(request, i, queue))
    words = [Words(language.decode, [*asked.stops, *stops]) for _ in streams]
    name = f"{form.prefix}-{uuid.uuid4().hex}"
    return Call(form, model, streams, words, queue, sum(map(len, prompts)), name)


class Piece(NamedTuple):
    """Of answer `index`: more text, and why it ended, if it did."""

    index: int
    text: str
    finish: str | None


async def pieces(call: Call, cancel: Callable[[Stream], None]) -> AsyncIterator[Piece]:
    """The text of all answers as it comes, to their ends.

    An answer with a stop word is cancelled in the engine.  Raises Refused if the engine failed.
    """
    going = set(range(len(call.streams)))
    while going:
        index, news = await call.queue.get()
        if index not in going:
            continue
        if news.finish == FAULT:
            raise Refused("the engine failed in a step", status=500)
        words = call.words[index]
        text = words.add(news.tokens, last=news.finish is not None)
        finish = "stop" if words.stopped else news.finish
        if finish:
            going.discard(index)
            cancel(call.streams[index])
        if text or finish:
            yield Piece(index, text, finish)


async def whole(call: Call, cancel: Callable[[Stream], None]) -> dict:
    """The answer when all of it is there.  Raises Refused as `pieces`."""
    ends: dict[int, str] = {}
    async for piece in pieces(call, cancel):
        if piece.finish:
            ends[piece.index] = piece.finish
    choices = []
    for i, words in enumerate(call.words):
        said = {"role": "assistant", "content": words.text, "refusal": None}
        text = {"message": said} if call.form.chat else {"text": words.text}
        choices.append({"index": i, **text, "logprobs": None, "finish_reason": ends[i]})
    return call.told(call.form.whole, choices) | {"usage": call.usage}


async def chunks(call: Call, cancel: Callable[[Stream], None], usage: bool) -> AsyncIterator[dict]:
    """The answer in pieces.  Raises Refused as `pieces`."""

    def chunk(index: int, text: dict, finish: str | None = None) -> dict:
        choice = {"index": index, **text, "logprobs": None, "finish_reason": finish}
        return call.told(call.form.chunk, [choice]) | ({"usage": None} if usage else {})

    if call.form.chat:
        for i in range(len(call.streams)):
            yield chunk(i, {"delta": {"role": "assistant", "content": ""}})
    async for index, text, finish in pieces(call, cancel):
        if not call.form.chat:
            yield chunk(index, {"text": text}, finish)
            continue
        if text:
            yield chunk(index, {"delta": {"content": text}})
        if finish:
            yield chunk(index, {"delta": {}}, finish)
    if usage:
        yield call.told(call.form.chunk, []) | {"usage": call.usage}
