"""The thread in which an engine runs, and the streams that it feeds.

    event loop   submit, cancel ->  inbox  -> thread:  engine.add, engine.cancel, engine.step
                 stream.queue   <-  news   <-

The engine belongs to the thread alone; the event loop only puts orders into its inbox, so a step
never makes it wait.  What goes wrong in a step ends the requests that were there, each with the
fault, and the engine goes on with empty blocks.
"""

import asyncio
import logging
import threading
from queue import SimpleQueue

from efflib.engine.engine import Engine
from efflib.engine.requests import News, Request

FAULT = "fault"  # why a stream ends that the engine could not serve
log = logging.getLogger(__name__)


class Stream:
    """One request of a client; several may share a queue, and say by `index` who they are."""

    def __init__(self, request: Request, index: int, queue: asyncio.Queue) -> None:
        self.request, self.index, self.queue = request, index, queue
        self.name: int | None = None  # the engine's, while it is there; the thread's own


class Worker:
    """Runs an engine until it is closed."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._inbox = engine, SimpleQueue()
        self._streams: dict[int, Stream] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.open: set[Stream] = set()  # the event loop's own: who has not ended yet

    def start(self) -> None:
        """Begins to serve; called in the event loop that asks."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """Ends after the step that runs."""
        self._inbox.put(("close", None))
        await asyncio.to_thread(self._thread.join)

    def submit(self, stream: Stream) -> None:
        """`stream.queue` gets (index, News) after each of its steps.  Check the request before."""
        self.open.add(stream)
        self._inbox.put(("add", stream))

    def cancel(self, stream: Stream) -> None:
        """Nothing more comes that matters; its blocks are free before the next step."""
        if stream in self.open:
            self.open.discard(stream)
            self._inbox.put(("cancel", stream))

    # ---- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while self._orders():
            try:
                news = self.engine.step()
            except Exception as fault:
                log.exception("a step failed")
                news = self._broken(fault)
            if news:
                self._tell([(self._streams[n.name], n) for n in news])
                for n in news:
                    if n.finish:
                        del self._streams[n.name]

    def _orders(self) -> bool:
        """Takes what is in the inbox, and waits for something while nothing runs; False: close."""
        while not self._inbox.empty() or not self.engine.busy:
            order, stream = self._inbox.get()
            if order == "close":
                return False
            if order == "add":
                stream.name = self.engine.add(stream.request)
                self._streams[stream.name] = stream
            elif stream.name in self._streams:  # it may have ended meanwhile
                self.engine.cancel(stream.name)
                del self._streams[stream.name]
        return True

    def _broken(self, fault: Exception) -> list[News]:
        for name in self._streams:
            self.engine.cancel(name)
        return [News(name, [], FAULT) for name in self._streams]

    def _tell(self, news: list[tuple[Stream, News]]) -> None:
        def deliver() -> None:
            for stream, item in news:
                if item.finish:
                    self.open.discard(stream)
                stream.queue.put_nowait((stream.index, item))

        self._loop.call_soon_threadsafe(deliver)
