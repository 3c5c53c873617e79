"""The next sandbox, made by a server before it forks the child that will use it.

Nothing here waits, and no thread is started, so that the server may fork at any time.
"""

import contextlib

from autograder.sandbox import warm
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable

wanted: list[SandboxSpec] = []  # at most one


def want(spec: SandboxSpec) -> None:
    """From now on a sandbox of this kind is made ahead."""
    wanted[:] = [spec] if spec.warm and not spec.unsafe else []


def make() -> None:
    """The next one, if there is none. Where that is impossible, who needs it will be told."""
    with contextlib.suppress(SandboxUnavailable):
        for spec in wanted if not warm.reason else ():
            warm.zygote_of(spec).make_ahead(spec)


def unready() -> dict[int, warm.Child]:
    """Sandboxes that go on when something can be read there."""
    spares = (zygote.spare for zygote in warm.zygotes.values())
    return {s.unready(): s for s in spares if s is not None and s.unready() >= 0}


def hand_on() -> None:
    """What was made is that of a child that was just forked."""
    for zygote in warm.zygotes.values():
        zygote.hand_on()
