"""A Dask cluster as an executor (needs the extra `cluster`).

`Client.get_executor()` is one as well, but asks again how a future stands when its answer has come.
If the worker has died in between, it takes the answer for an exception (ValueError: too many values
to unpack); if the answer can't be had, nobody is told.  `result` of Dask's own futures is safe.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client


class OnDask(Executor):
    """Runs functions on the workers of a connected client, which stays the caller's."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def submit(self, function: Callable, /, *args: Any, **kwargs: Any) -> Future:
        """function: may run twice, when a worker dies."""
        there = self._client.submit(function, *args, **kwargs, pure=False)
        here = Future()
        here.add_done_callback(lambda ended: there.cancel() if ended.cancelled() else None)
        there.add_done_callback(lambda _: tell(here, there.result))
        return here


def tell(future: Future, result: Callable[[], Any]) -> None:
    """Ends the future as `result` ends."""
    with suppress(InvalidStateError):  # it was cancelled
        try:
            future.set_result(result())
        except BaseException as error:
            future.set_exception(error)
