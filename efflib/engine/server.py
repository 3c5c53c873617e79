"""An OpenAI-compatible endpoint over the engine, with Starlette.

    POST /v1/completions, /v1/chat/completions     whole, or as a stream of server-sent events
    GET  /v1/models, /v1/models/NAME               the one model there is
    GET  /health                                   who runs and waits, and how many blocks are free
    GET  /                                         a page to chat with it

A request that does not fit is refused before it joins the line, with OpenAI's form of an error:
400 what it asks for, 404 another model, 413 a body that is too long, 429 too many requests.  When
a client goes, whichever way, its requests are cancelled and their blocks are free in the next step.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from efflib.engine import answers, protocol
from efflib.engine.answers import Call
from efflib.engine.engine import Engine
from efflib.engine.languages import Language
from efflib.engine.protocol import Chat, Common, Completion, Refused
from efflib.engine.requests import TooLong
from efflib.engine.worker import Worker

PAGE = Path(__file__).with_name("page.html")
SSE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Limits(NamedTuple):
    """Of the server; those of the engine are its `Sizes`."""

    body: int = 1_000_000  # bytes of a request
    open: int = 256  # requests that run or wait


class Server:
    """The handlers; `app` is what uvicorn runs."""

    def __init__(
        self, engine: Engine, language: Language, name: str, limits: Limits | None = None
    ) -> None:
        self.worker, self.language, self.name = Worker(engine), language, name
        self.limits, self.created = limits or Limits(), int(time.time())
        faults = {Refused: refused, HTTPException: no_such_thing, Exception: broken}
        routes = [
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/health", self.health),
            Route("/", lambda _: FileResponse(PAGE)),
        ]
        self.app = Starlette(routes=routes, exception_handlers=faults, lifespan=self._life)

    @contextlib.asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        self.worker.start()
        yield
        await self.worker.close()

    # ---- handlers -----------------------------------------------------------------------------

    async def completions(self, http: HttpRequest) -> Response:
        asked = protocol.read(await self._body(http), Completion)
        self._expect(asked)
        prompts = answers.prompts(asked, self.language)
        tokens = asked.max_tokens or protocol.COMPLETION_TOKENS
        return await self._serve(http, asked, prompts, tokens, answers.COMPLETION, ())

    async def chat(self, http: HttpRequest) -> Response:
        asked = protocol.read(await self._body(http), Chat)
        self._expect(asked)
        prompt = self.language.chat(asked.turns())
        room = max(self.worker.engine.longest - len(prompt), 1)
        tokens = asked.max_completion_tokens or asked.max_tokens or room
        stops = self.language.chat_stops
        return await self._serve(http, asked, [prompt], tokens, answers.CHAT, stops)

    async def models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def model(self, http: HttpRequest) -> Response:
        self._expect_model(http.path_params["name"])
        return JSONResponse(self._described())

    async def health(self, http: HttpRequest) -> Response:
        engine = self.worker.engine
        told = {"open": len(self.worker.open), "blocks": engine.sizes.blocks}
        told |= {"running": len(engine.running), "waiting": len(engine.waiting)}
        return JSONResponse(told | {"free": engine.cache.free})

    # ---- what they share ----------------------------------------------------------------------

    def _described(self) -> dict:
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "efflib"}

    async def _body(self, http: HttpRequest) -> bytes:
        body = b""
        async for part in http.stream():
            body += part
            if len(body) > self.limits.body:
                raise Refused(f"a body has at most {self.limits.body} bytes", status=413)
        return body

    def _expect_model(self, name: str) -> None:
        if name != self.name:
            what = f"the model {name!r} does not exist; there is {self.name!r}"
            raise Refused(what, "model", "model_not_found", 404)

    def _expect(self, asked: Common) -> None:
        self._expect_model(asked.model)
        asked.stops  # noqa: B018  raises what it refuses

    async def _serve(
        self,
        http: HttpRequest,
        asked: Common,
        prompts: list[list[int]],
        tokens: int,
        form: answers.Form,
        stops: tuple[str, ...],
    ) -> Response:
        call = answers.call(asked, prompts, tokens, form, stops, self.language, self.name)
        for stream in call.streams:
            try:
                self.worker.engine.check(stream.request)
            except ValueError as fault:
                code = "context_length_exceeded" if isinstance(fault, TooLong) else None
                raise Refused(str(fault), form.param, code) from None
        if len(self.worker.open) + len(call.streams) > self.limits.open:
            raise Refused("too many requests: try again later", None, "rate_limit_exceeded", 429)
        if asked.stream:
            return Streaming(self.worker, call, asked.usage_in_stream)
        with serving(self.worker, call):
            return await unless_gone(http, answers.whole(call, self.worker.cancel))


@contextlib.contextmanager
def serving(worker: Worker, call: Call):
    """Inside, the requests of a call are in the engine; afterwards none is, whatever happened."""
    try:
        for stream in call.streams:
            worker.submit(stream)
        yield
    finally:
        for stream in call.streams:
            worker.cancel(stream)


class Streaming(StreamingResponse):
    """Server-sent events; Starlette stops it when the client goes."""

    def __init__(self, worker: Worker, call: Call, usage: bool) -> None:
        super().__init__(events(worker, call, usage), media_type="text/event-stream", headers=SSE)
        self.worker, self.served = worker, call

    async def __call__(self, scope, receive, send) -> None:
        with serving(self.worker, self.served):
            await super().__call__(scope, receive, send)


async def events(worker: Worker, call: Call, usage: bool) -> AsyncIterator[str]:
    """Chunks as they come; a fault of the engine is told as an event, for the status has gone."""
    try:
        async for chunk in answers.chunks(call, worker.cancel, usage):
            yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"
    except Refused as fault:
        yield f"data: {json.dumps(fault.body())}\n\n"


async def unless_gone(http: HttpRequest, answer: Awaitable[dict]) -> Response:
    """The whole answer, or nothing as soon as the client has gone."""

    async def gone() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(answer), asyncio.ensure_future(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return JSONResponse(tasks[0].result()) if tasks[0].done() else Response(status_code=499)
    finally:
        for task in tasks:
            task.cancel()


# ---- faults ------------------------------------------------------------------------------------

Handler = Callable[[HttpRequest, Exception], Awaitable[Response]]


async def refused(http: HttpRequest, fault: Refused) -> Response:
    return JSONResponse(fault.body(), fault.status)


async def no_such_thing(http: HttpRequest, fault: HTTPException) -> Response:
    """Another path or method."""
    told = Refused(f"{http.method} {http.url.path}: {fault.detail}", status=fault.status_code)
    return JSONResponse(told.body(), fault.status_code, fault.headers)


async def broken(http: HttpRequest, fault: Exception) -> Response:
    """A mistake of this server's own; what it was stands in its log."""
    return JSONResponse(Refused("the server made a mistake", status=500).body(), 500)


def application(engine: Engine, language: Language, name: str, limits: Limits | None = None):
    """The app for uvicorn; the engine runs while it does."""
    return Server(engine, language, name, limits).app
