"""OpenAI's requests and errors: what is read, what is refused, and in which form.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

Read are the fields below.  A field that is not known, or asks for what is not done (logprobs,
penalties, tools), is refused by name rather than ignored; `user` and `metadata` change nothing.
Source: OpenAI's API reference, completions and chat completions.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from efflib.decoding.sampling import Sampling

MOST_CHOICES = 16
MOST_STOPS = 4
COMPLETION_TOKENS = 16  # OpenAI's default of a completion

Stop = str | list[str] | None
TokenId = Annotated[int, Meta(ge=0)]


class Refused(Exception):
    """A request that is not served, and how to say so."""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status

    def body(self) -> dict:
        """As OpenAI has it."""
        kind = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
        told = {
            "message": str(self),
            "type": kind.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        return {"error": told}


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # not done, and no client can tell


class Common(Struct, forbid_unknown_fields=True, kw_only=True):
    """What both kinds have."""

    model: str
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1)] | None = None  # not OpenAI's; vLLM has it
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    seed: int | None = None
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | UnsetType = UNSET
    metadata: dict | None | UnsetType = UNSET
    # asked for without effect, or refused: see `expect_done`
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict | None = None

    @property
    def sampling(self) -> Sampling:
        temperature = 1.0 if self.temperature is None else self.temperature
        return Sampling(temperature, self.top_k, self.top_p)

    @property
    def stops(self) -> list[str]:
        """Raises Refused for too many of them, and for an empty one."""
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(found) > MOST_STOPS or "" in found:
            raise Refused(f"stop may have {MOST_STOPS} words, none of them empty", "stop")
        return found

    @property
    def usage_in_stream(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class Completion(Common, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | TokenId | list[TokenId]]  # all of one kind
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    logprobs: int | None = None


class Message(Struct, kw_only=True):
    """One turn; a client may send more fields of its own."""

    role: Annotated[str, Meta(min_length=1)]
    content: str | list[dict]


class Chat(Common, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list | None = None
    tool_choice: object = None
    response_format: dict | None = None

    def turns(self) -> list[tuple[str, str]]:
        """(role, text) of each message.  Raises Refused for content that is no text."""
        return [(m.role, text_of(m.content, i)) for i, m in enumerate(self.messages)]


def text_of(content: str | Sequence[dict], i: int) -> str:
    """The text of a message, of one string or of parts of type "text"."""
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused("only content of type text is read", f"messages[{i}].content")
    return "".join(part["text"] for part in content)


NOT_DONE = ("frequency_penalty", "presence_penalty", "logit_bias", "echo", "suffix", "logprobs")
NOT_DONE += ("top_logprobs", "tools", "tool_choice")


def expect_done(asked: Common) -> None:
    """Raises Refused for a field that asks for what this server does not do."""
    for name in NOT_DONE:
        if getattr(asked, name, None) and getattr(asked, name) not in ("none", "auto"):
            raise Refused(f"{name} is not supported here", name, "unsupported_parameter")
    if isinstance(asked, Completion) and asked.logprobs is not None:  # 0 asks for something, too
        raise Refused("logprobs is not supported here", "logprobs", "unsupported_parameter")
    form = getattr(asked, "response_format", None)
    if form and form.get("type") != "text":
        raise Refused("response_format is always text here", "response_format")
    if (best := getattr(asked, "best_of", None)) and best != (asked.n or 1):
        raise Refused("best_of is not supported here", "best_of", "unsupported_parameter")


def read(body: bytes, kind: type[Common]) -> Common:
    """A request out of a body.  Raises Refused, with the field where one is at fault."""
    try:
        asked = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as fault:
        where = re.search(r"`\$\.?([^`]*)`", str(fault))
        unknown = re.search(r"unknown field `([^`]*)`|missing required field `([^`]*)`", str(fault))
        named = next(filter(None, unknown.groups())) if unknown else where and where[1]
        raise Refused(str(fault), named or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Refused(f"the body is no JSON: {fault}", code="invalid_json") from None
    expect_done(asked)
    return asked
