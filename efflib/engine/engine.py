"""The loop of the engine: propose, schedule, make room, one pass, choose, roll back.

    lacking = known tokens without a key + proposals          what a request asks the scheduler for
    pass      as many of them as the scheduler gives, of all requests together
    yield     1 .. g + 1 tokens for a request whose known tokens are all computed, else none
    cached    afterwards: all known tokens but the newest, which no pass has read

Every request that is added comes out with the tokens that `decoding.sampling.generate` gives it
alone (greedy, up to the rounding of `passes`), whoever it ran with, also when it was put back.

    engine = Engine(model, Sizes(blocks=256))
    name = engine.add(Request(prompt, max_tokens=64))
    while engine.busy:
        for news in engine.step(): ...
"""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from efflib.checks import expect_whole
from efflib.decoding.drafts import next_gamma
from efflib.engine.blocks import BlockCache
from efflib.engine.choosing import chosen
from efflib.engine.passes import Piece, mixed_pass
from efflib.engine.policies import chunked
from efflib.engine.proposals import Proposer
from efflib.engine.requests import News, Request, State, TooLong, started
from efflib.models.llama import Llama
from efflib.serving.blocks import blocks_for
from efflib.serving.schedulers import Plan, line_after


class Sizes(NamedTuple):
    """Of an engine: its memory, and the most that a step takes on."""

    blocks: int = 512
    block: int = 16  # tokens
    budget: int = 256  # tokens of a step
    most: int = 16  # requests at once
    gamma: int = 4  # proposals of a request at first
    longest: int | None = None  # tokens of a request; None: what the model reads


class Did(NamedTuple):
    """What a step computed: (request, new, cached) of each, how many logits, and what was new."""

    work: list[tuple[int, int, int]]
    logits: int
    tokens: int


class Engine:
    """Requests in, tokens out.  One thread at a time may use it."""

    def __init__(
        self,
        model: Llama,
        sizes: Sizes | None = None,
        policy: Callable[..., Plan] = chunked,
        proposer: Proposer | None = None,
    ) -> None:
        self.model, self.policy, self.proposer = model, policy, proposer
        self.sizes = sizes = Sizes() if sizes is None else sizes
        reads = model.config.max_position_embeddings
        self.longest = reads if sizes.longest is None else min(sizes.longest, reads)
        expect_whole(1, budget=sizes.budget, most=sizes.most, longest=self.longest)
        expect_whole(gamma=sizes.gamma)
        self.cache = BlockCache(model, sizes.blocks, sizes.block)
        self.running: dict[int, State] = {}  # in the order of admission
        self.waiting: dict[int, State] = {}  # in the order of the line
        self.log: list[Did] = []
        self.found = self.put_back = self.proposed = self.accepted = 0
        self._names = count()

    @property
    def busy(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self.running or self.waiting)

    def check(self, request: Request) -> None:
        """Raises ValueError for what could not run.  Any thread may ask.

        The last token of an answer is never read, so it needs no room.
        """
        request.checked(self.model.config.vocab_size)
        total = len(request.prompt) + request.max_tokens
        if total > self.longest:
            raise TooLong(
                f"{len(request.prompt)} tokens and {request.max_tokens} new ones are {total}; a "
                f"request may have {self.longest}"
            )
        if (needs := blocks_for(total - 1, self.sizes.block)) > self.sizes.blocks:
            raise TooLong(f"{total} tokens need {needs} blocks of {self.sizes.blocks}")
        if self.policy is not chunked and total - 1 > self.sizes.budget:
            raise TooLong(f"{total} tokens may have to be read in one step of the budget")

    def add(self, request: Request) -> int:
        """Joins the line; the name by which `step` reports.  Raises ValueError as `check`."""
        self.check(request)
        name = next(self._names)
        self.waiting[name] = started(request, self.sizes.gamma if self.proposer else 0)
        return name

    def cancel(self, name: int) -> None:
        """The request goes at once, and its blocks are free.  A name that has gone is no fault."""
        if self.running.pop(name, None) is not None:
            self._leave(name)
        self.waiting.pop(name, None)

    def step(self) -> list[News]:
        """One pass; what it yielded.  Nothing where nobody waits or runs."""
        if not self.busy:
            return []
        proposals = self._proposals()
        for name in (plan := self._plan(proposals)).put_back:
            self._leave(name)
        if plan.put_back:
            self._line(plan.put_back)
        pieces, asked = self._pieces(plan, proposals)
        if not pieces:
            return []
        logits = mixed_pass(self.model, self.cache, pieces)
        self.log.append(Did([(p.name, len(p.ids), p.start) for p in pieces], len(logits), 0))
        return self._yield(pieces, asked, logits)

    # ---- before the pass ----------------------------------------------------------------------

    def _proposals(self) -> dict[int, list[int]]:
        """For those who lack one token: what may come behind it, and never more than may come."""
        if self.proposer is None:
            return {}
        asking = {n: s for n, s in self.running.items() if len(s.text) - s.cached == 1}
        counts = {name: min(s.gamma, s.left - 1) for name, s in asking.items()}
        return self.proposer.propose({name: s.text for name, s in asking.items()}, counts)

    def _plan(self, proposals: dict[int, list[int]]) -> Plan:
        """The policy's plan; if nobody can go on, the last one that runs is put back."""
        s = self.sizes
        running = [
            (name, len(state.text) + len(proposals.get(name, ())), state.cached)
            for name, state in self.running.items()
        ]
        waiting = [(name, len(state.text)) for name, state in self.waiting.items()]
        return Plan(*self.policy(running, waiting, self.cache.free, s.budget, s.most, s.block))

    def _line(self, put_back: list[int]) -> None:
        """These lose their keys, and stand before all others, in their order."""
        states = {**self.running, **self.waiting}
        running = [(name, len(s.text), s.cached) for name, s in self.running.items()]
        order = line_after(running, [(n, len(s.text)) for n, s in self.waiting.items()], put_back)
        for name in put_back:
            del self.running[name]
            states[name].cached = 0
        self.waiting = {name: states[name] for name, _ in order}
        self.put_back += len(put_back)

    def _pieces(
        self, plan: Plan, proposals: dict[int, list[int]]
    ) -> tuple[list[Piece], list[list[int]]]:
        """What the pass reads, with room for it, and the proposals in it.

        Who comes new may find the beginning of its text; then it needs less, and if others took
        what it needs, it waits on.
        """
        pieces, asked = [], []
        for name, n in sorted(plan.work, key=lambda pair: pair[0] in self.waiting):
            if name in self.waiting and not (n := self._admit(name, n)):
                break
            state = self.running[name]
            known = len(state.text) - state.cached  # without a key
            ids = proposals.get(name, [])[: max(n - known, 0)]
            fed = state.text[state.cached :][:n] + ids
            self.cache.grow(name, state.cached + len(fed))
            done = n >= known
            pieces.append(Piece(name, state.cached, fed, len(ids) + 1 if done else 0))
            asked.append(ids)
        return pieces, asked

    def _admit(self, name: int, n: int) -> int:
        """From the line into the batch; how many of n tokens it may compute, 0: it stays."""
        state = self.waiting[name]
        found = self.cache.start(name, state.text)
        n = min(n, len(state.text) - found, self.cache.free * self.sizes.block)
        if n < 1:
            self.cache.end(name)
            return 0
        state.cached, self.found = found, self.found + found
        self.running[name] = self.waiting.pop(name)
        return n

    # ---- behind it ----------------------------------------------------------------------------

    def _yield(self, pieces: list[Piece], asked: list[list[int]], logits) -> list[News]:
        """Tokens to their requests; caches forget what was refused; who is done leaves."""
        ready = [(p, ids) for p, ids in zip(pieces, asked, strict=True) if p.wanted]
        states = [self.running[p.name] for p, _ in ready]
        yielded = chosen(states, [ids for _, ids in ready], logits)
        found = {p.name: tokens for (p, _), tokens in zip(ready, yielded, strict=True)}
        news = []
        for piece, ids in zip(pieces, asked, strict=True):
            state, finish, new = self.running[piece.name], None, []
            state.cached = piece.stop - len(ids)
            if piece.wanted:
                new, finish = state.take(found[piece.name])
                if ids:
                    self._learn(state, len(ids), len(found[piece.name]) - 1)
                state.cached = len(state.text) - 1
                self.cache.roll_back(piece.name, state.cached)
                news.append(News(piece.name, new, finish))
            self.cache.settle(piece.name, state.text, state.cached)
            if finish:
                del self.running[piece.name]
                self._leave(piece.name)
        self.log[-1] = self.log[-1]._replace(tokens=sum(len(n.tokens) for n in news))
        return news

    def _learn(self, state: State, proposed: int, accepted: int) -> None:
        self.proposed, self.accepted = self.proposed + proposed, self.accepted + accepted
        state.gamma = next_gamma(state.gamma, proposed, accepted, self.sizes.gamma)

    def _leave(self, name: int) -> None:
        """Blocks and what a proposer kept are given back."""
        self.cache.end(name)
        if self.proposer is not None:
            self.proposer.forget(name)


def run(engine: Engine, requests: list[Request]) -> list[list[int]]:
    """Serves requests that are all there at once; the tokens of each answer."""
    names = [engine.add(request) for request in requests]
    answers: dict[int, list[int]] = {name: [] for name in names}
    while engine.busy:
        for news in engine.step():
            answers[news.name] += news.tokens
    return [answers[name] for name in names]
