# %% [markdown]
# # Lab 18: The engine, or what the parts are worth together
#
# DRAFT: cards, stubs and solutions of the six exercises, and how they join into an engine.  Not yet
# here: opening picture, predictions, reveals, written questions, report.
#
# **The question.** One program answers 16 requests one after the other, another answers the same
# 16 with the same model on the same processor, gives every one of them the same tokens, and is
# several times as fast. **Which of its parts gains what, and what may it never change?**
#
# ## Map and notation
#
# | word | in code | meaning |
# |---|---|---|
# | a request's text | `texts[name]` | known tokens: prompt and answer so far |
# | cached tokens | `cached` | those of them with a key and a value |
# | a piece | `(name, cached, n)` | n tokens of a request that a pass reads, behind `cached` others |
# | proposals | `proposed[name]` | tokens that may come next, read behind the text |
# | table | `tables[name]` | the blocks of a request, in the order of its text |

# %%
import torch
import torch.nn.functional as F
from torch import nn

# %% [markdown]
# ### Exercise 1 · A mixed batch as one row
#
# **30 minutes · 15 points** · difficulty 3 of 5 · importance 5 of 5
#
# **Deliver** two functions.
#
# - `layout(pieces, texts, proposed) -> (ids, positions, wanted)`: what a pass reads. `pieces` is a
#   list of `(name, cached, n)`, n >= 1: the n tokens from position `cached` on of the request's
#   text and the proposals behind it. `ids` and `positions` are lists of T ints, piece after piece.
#   `wanted` has an entry for each piece: the places in the pass (0 .. T-1, ascending) whose logits
#   choose tokens: that of the last known token and those of the proposals that are read. Empty if
#   the piece does not reach the last known token.
# - `step(pieces, texts, proposed, best) -> (new, cached)`: what a greedy pass yields. `best[i]` is
#   the largest logit's token at place i of the pass (T ints). `new[name]`: for a piece with wanted
#   places, the model's own tokens up to the first that was not proposed, it included; else [].
#   `cached[name]`: afterwards, all known tokens but the newest for who got one, else all that the
#   piece read.
#
# Names are ints or strings, none occurs twice. No argument is changed.


# %% solution="ex1"
def layout(pieces: list, texts: dict, proposed: dict) -> tuple[list, list, list]:
    """(ids [T], positions [T], wanted: a list of places for each piece)."""
    ### BEGIN SOLUTION
    ids, positions, wanted = [], [], []
    for name, cached, n in pieces:
        known = len(texts[name])
        whole = [*texts[name], *proposed.get(name, [])]
        first = len(ids) - cached  # the place of position 0, if it were read
        ids += whole[cached : cached + n]
        positions += range(cached, cached + n)
        wanted.append([first + p for p in range(known - 1, cached + n)])
    return ids, positions, wanted
    ### END SOLUTION


def step(pieces: list, texts: dict, proposed: dict, best: list) -> tuple[dict, dict]:
    """(new tokens of each, cached tokens of each afterwards)."""
    ### BEGIN SOLUTION
    new, after = {}, {}
    _, _, wanted = layout(pieces, texts, proposed)
    for (name, cached, n), places in zip(pieces, wanted, strict=True):
        own, guesses = [best[i] for i in places], proposed.get(name, [])
        agree = 0
        while agree < len(own) - 1 and own[agree] == guesses[agree]:
            agree += 1
        new[name] = own[: agree + 1]
        after[name] = len(texts[name]) + agree if own else cached + n
    return new, after
    ### END SOLUTION


# %% [markdown]
# ### Exercise 2 · Attention over blocks, each request its own
#
# **40 minutes · 15 points** · difficulty 4 of 5 · importance 5 of 5
#
# **Deliver** two functions.
#
# - `slots(pieces, tables, block) -> Tensor [T] int64`: the row, of all blocks in one line, into
#   which each new token's key is written.
# - `attend(q, k_pages, v_pages, pieces, tables) -> Tensor [T, H, d]`: q [T, H, d]; pages
#   [blocks, block, Hkv, d] hold the new keys already. Every query sees the keys of its own request
#   up to its own position, scores are divided by sqrt(d), and H/Hkv neighbours share a key head.
#   Tables may be longer than is needed; what else lies in blocks, NaN too, must not matter.


# %% solution="ex2"
def slots(pieces: list, tables: dict, block: int) -> torch.Tensor:
    """Where the keys of each new token lie. [T] int64"""
    ### BEGIN SOLUTION
    rows = [
        tables[name][p // block] * block + p % block
        for name, cached, n in pieces
        for p in range(cached, cached + n)
    ]
    return torch.tensor(rows, dtype=torch.int64)
    ### END SOLUTION


def attend(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, pieces: list, tables: dict
) -> torch.Tensor:
    """softmax(q k^T / sqrt(d)) v of each request by itself. [T, H, d]"""
    ### BEGIN SOLUTION
    block, group, out, here = k_pages.shape[1], q.shape[1] // k_pages.shape[2], [], 0
    for name, cached, n in pieces:
        rows = slots([(name, 0, cached + n)], tables, block)
        k, v = (x.flatten(0, 1)[rows].repeat_interleave(group, 1) for x in (k_pages, v_pages))
        scores = torch.einsum("thd,shd->hts", q[here : here + n], k) / q.shape[-1] ** 0.5
        later = torch.arange(cached + n) > torch.arange(cached, cached + n)[:, None]
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        out.append(torch.einsum("hts,shd->thd", weights, v))
        here += n
    return torch.cat(out)
    ### END SOLUTION


# %% [markdown]
# ### Exercise 3 · Four bits behind the same interface
#
# **35 minutes · 15 points** · difficulty 3 of 5 · importance 4 of 5
#
# **Deliver** `Packed(weight, bias, group)`, a module with `forward(x) -> x W_hat^T + b` in x's
# dtype, and `quantized(model, group) -> model`: a copy in which every `nn.Linear` is a `Packed`,
# but for those whose weight another module uses as well (lm_head, where it is the token table).
# Codes are asymmetric, 4 bits, rounded to nearest, a scale (float16) and a zero point for each
# group of `group` inputs; 0 lies in the range of every group. Two codes lie in a byte: weight and
# zero points take half a byte each, so that `stored(module)` counts what memory counts.


# %% solution="ex3"
class Packed(nn.Module):
    """A linear of 4-bit codes, two in a byte; decoded in every call."""

    ### BEGIN SOLUTION
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, group: int) -> None:
        super().__init__()
        self.shape, self.group = tuple(weight.shape), group
        w = F.pad(weight.detach().float(), (0, -weight.shape[1] % group)).unflatten(1, (-1, group))
        lo, hi = w.amin(-1).clamp(max=0), w.amax(-1).clamp(min=0)  # [N, groups]
        scale = ((hi - lo) / 15).clamp(min=2.0**-14).half()
        zero = (-lo / scale.float()).round().clamp(0, 15)
        codes = (w / scale.float()[..., None]).round().add(zero[..., None]).clamp(0, 15)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", self._pack(zero.flatten()))
        self.register_buffer("codes", self._pack(codes.flatten(1)[:, : weight.shape[1]].flatten()))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    @staticmethod
    def _pack(codes: torch.Tensor) -> torch.Tensor:
        pairs = F.pad(codes.to(torch.uint8), (0, codes.numel() % 2)).unflatten(0, (-1, 2))
        return pairs[:, 0] | pairs[:, 1] << 4

    @staticmethod
    def _unpack(packed: torch.Tensor, n: int) -> torch.Tensor:
        return torch.stack([packed & 15, packed >> 4], 1).flatten()[:n].float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (rows, columns), groups = self.shape, self.scale.shape[1]
        codes = self._unpack(self.codes, rows * columns).view(rows, columns)
        zero = self._unpack(self.zero, rows * groups).view(rows, groups)
        which = torch.arange(columns) // self.group
        w = (codes - zero[:, which]) * self.scale.float()[:, which]
        return F.linear(x, w.to(x.dtype), self.bias)

    ### END SOLUTION


def quantized(model: nn.Module, group: int) -> nn.Module:
    """A copy with `Packed` linears; the model stays as it was."""
    ### BEGIN SOLUTION
    import copy

    model = copy.deepcopy(model)
    owners: dict[int, int] = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            owners[id(weight)] = owners.get(id(weight), 0) + 1
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and owners[id(module.weight)] == 1:
            model.set_submodule(name, Packed(module.weight, module.bias, group))
    return model
    ### END SOLUTION


# %% [markdown]
# ### Exercise 4 · Blocks that roll back
#
# **35 minutes · 15 points** · difficulty 4 of 5 · importance 5 of 5
#
# Proposals are written into blocks before anybody knows whether they hold. **Deliver** the class
# `Blocks(blocks, block)`: `grow(name, length)` (raises MemoryError before anything changes),
# `roll_back(name, length)`, `settle(name, text, cached)` (the first `cached` tokens are certain:
# their full blocks may be found), `start(name, text) -> int` (a table that begins with the blocks
# of the longest beginning that is known; how many tokens that is, at most all but one),
# `end(name)`, and the attributes `tables` and `free`. A block goes to whom it has been free for
# longest, and until then it can be found; a sequence gives its blocks back last one first.


# %% solution="ex4"
class Blocks:
    """Tables of requests whose newest tokens may be taken back."""

    ### BEGIN SOLUTION
    def __init__(self, blocks: int, block: int) -> None:
        self.block, self.tables = block, {}
        self._line = list(range(blocks))  # free, longest first
        self._owners, self._holds, self._known = [0] * blocks, {}, {}

    @property
    def free(self) -> int:
        return len(self._line)

    def start(self, name, text: list) -> int:
        table = []
        for i in range((len(text) - 1) // self.block):
            found = self._known.get(tuple(text[: (i + 1) * self.block]))
            if found is None:
                break
            if not self._owners[found]:
                self._line.remove(found)
            self._owners[found] += 1
            table.append(found)
        self.tables[name] = table
        return len(table) * self.block

    def grow(self, name, length: int) -> None:
        table = self.tables[name]
        needs = -(-length // self.block) - len(table)
        if needs > len(self._line):
            raise MemoryError(f"{needs} blocks are needed, {len(self._line)} are free")
        for _ in range(needs):
            taken = self._line.pop(0)
            text = self._holds.pop(taken, None)
            if self._known.get(text) == taken:
                del self._known[text]
            self._owners[taken] = 1
            table.append(taken)

    def roll_back(self, name, length: int) -> None:
        table = self.tables[name]
        while len(table) > -(-length // self.block):
            last = table.pop()
            self._owners[last] -= 1
            if not self._owners[last]:
                self._line.append(last)

    def settle(self, name, text: list, cached: int) -> None:
        for i in range(cached // self.block):
            start, here = tuple(text[: (i + 1) * self.block]), self.tables[name][i]
            if here not in self._holds:
                self._holds[here] = start
                self._known.setdefault(start, here)

    def end(self, name) -> None:
        self.roll_back(name, 0)
        del self.tables[name]

    ### END SOLUTION


# %% [markdown]
# ### Exercise 5 · A stream that survives
#
# **30 minutes · 15 points** · difficulty 3 of 5 · importance 4 of 5
#
# **Deliver** `Told(stops)` with `add(text, last) -> str` and `stopped`: `text` is the whole answer
# so far (it only grows, but for a half character at its end, which decodes to "\ufffd"). `add`
# returns what can be told now: nothing that may still become a stop word, no half character unless
# `last`; of what stands before the first stop word everything, of what stands behind nothing. And
# `put_back(running, waiting, name) -> (running, waiting)`: dicts name -> [text, cached] in their
# order; the request stands first in the line, with all of its text and nothing cached.


# %% solution="ex5"
class Told:
    """The text of one answer, in pieces that stay."""

    ### BEGIN SOLUTION
    def __init__(self, stops: list[str]) -> None:
        self.stops, self.told, self.stopped = stops, 0, False

    def add(self, text: str, last: bool) -> str:
        if self.stopped:
            return ""
        places = [text.find(stop) for stop in self.stops if stop in text]
        if places:
            self.stopped, end = True, min(places)
        else:
            whole = text if last else text.rstrip("\ufffd")
            held = [n for s in self.stops for n in range(1, len(s)) if whole.endswith(s[:n])]
            end = len(whole) - (0 if last else max(held, default=0))
        piece, self.told = text[self.told : end], max(end, self.told)
        return piece

    ### END SOLUTION


def put_back(running: dict, waiting: dict, name) -> tuple[dict, dict]:
    """(running, waiting) afterwards, new dicts."""
    ### BEGIN SOLUTION
    text, _ = running[name]
    rest = {other: list(state) for other, state in running.items() if other != name}
    return rest, {name: [list(text), 0], **{n: list(s) for n, s in waiting.items()}}
    ### END SOLUTION


# %% [markdown]
# ### Exercise 6 · The board
#
# **35 minutes · 15 points** · difficulty 4 of 5 · importance 4 of 5
#
# A machine is (weights, row, token, pair, head, bandwidth, peak) as in `efflib.traffic.simulate`.
# **Deliver** `seconds(machine, pieces, logits) -> float` by the roofline of a step, and
# `best_gamma(machine, requests, cached, acceptance, most) -> int`: the number of proposals, 0 to
# `most`, at which a batch of so many equal requests makes the most tokens per second, where a
# proposal holds with probability `acceptance` if all before it held, and proposing costs nothing.
# Of equal ones the smallest. **Derive** how many tokens come out of a pass.


# %% solution="ex6"
def seconds(machine, pieces: list, logits: int) -> float:
    """The larger of reading and computing, of one step."""
    ### BEGIN SOLUTION
    new, cached = sum(n for _, _, n in pieces), sum(c for _, c, _ in pieces)
    pairs = sum(n * c + n * (n + 1) / 2 for _, c, n in pieces)
    moved = machine.weights + machine.row * (cached + new)
    flops = machine.token * new + machine.pair * pairs + machine.head * logits
    return max(moved / machine.bandwidth, flops / machine.peak)
    ### END SOLUTION


def best_gamma(machine, requests: int, cached: int, acceptance: float, most: int) -> int:
    """Proposals of each request that make the most tokens per second."""
    ### BEGIN SOLUTION
    best, rate = 0, 0.0
    for gamma in range(most + 1):
        pieces = [(i, cached, gamma + 1) for i in range(requests)]
        made = requests * sum(acceptance**i for i in range(gamma + 1))
        if (now := made / seconds(machine, pieces, requests * (gamma + 1))) > rate:
            best, rate = gamma, now
    return best
    ### END SOLUTION


# %% [markdown]
# ## All of it joined


# %% tags=["demo"]
def serve(model, requests, blocks=64, block=8, budget=64, most=8, propose=None):
    """Your parts as one engine: requests [(prompt, tokens)] -> answers, and the pieces of each pass.

    given: lab 14's scheduler; propose(text, n) -> tokens; the passes of `efflib.engine.passes`.
    """
    from efflib.serving.schedulers import preempting

    c, cache = model.config, Blocks(blocks, block)
    pages = [
        torch.zeros(2, blocks, block, c.num_key_value_heads, c.head_dim)
        for _ in range(c.num_hidden_layers)
    ]
    waiting = {i: [list(prompt), 0] for i, (prompt, _) in enumerate(requests)}
    running, done, log = {}, {}, []
    while running or waiting:
        texts = {n: s[0] for n, s in {**running, **waiting}.items()}
        lengths = {i: len(prompt) + n for i, (prompt, n) in enumerate(requests)}
        proposed = {}
        for name, (text, cached) in running.items():
            if propose and len(text) - cached == 1:
                proposed[name] = propose(text, lengths[name] - len(text) - 1)
        state = [(n, len(t) + len(proposed.get(n, [])), k) for n, (t, k) in running.items()]
        line = [(n, len(t)) for n, (t, _) in waiting.items()]
        work, back = preempting(state, line, cache.free, budget, most, block)
        for name in back:
            cache.end(name)
            running, waiting = put_back(running, waiting, name)
        pieces = []
        for name, n in work:
            if name in waiting:
                found = cache.start(name, texts[name])
                n = min(n, len(texts[name]) - found, cache.free * block)
                if n < 1:
                    cache.end(name)
                    break
                running[name] = [waiting.pop(name)[0], found]
            cached = running[name][1]
            cache.grow(name, cached + n)
            pieces.append((name, cached, n))
        ids, positions, wanted = layout(pieces, texts, proposed)
        log.append((pieces, sum(map(len, wanted))))
        best = forward(model, pages, pieces, cache.tables, ids, positions).argmax(-1).tolist()
        new, after = step(pieces, texts, proposed, best)
        for name, _, _ in pieces:
            running[name][0] += new[name]
            running[name][1] = after[name]
            cache.roll_back(name, after[name])
            cache.settle(name, running[name][0], after[name])
            if len(running[name][0]) >= lengths[name]:
                done[name] = running.pop(name)[0][len(requests[name][0]) :]
                cache.end(name)
    assert cache.free == blocks
    return [done[i] for i in range(len(requests))], log


@torch.inference_mode()
def forward(model, pages, pieces, tables, ids, positions):
    """Logits [T, V] of a mixed pass: the model's layers, your slots and your attention."""

    class Writes:
        length = 0

        def append(self, layer, k, v):
            rows = slots(pieces, tables, pages[layer].shape[2])
            for page, new in zip(pages[layer], (k, v), strict=True):
                page.flatten(0, 1)[rows] = new[0].transpose(0, 1)
            return k, v

    layers, dense = model.model.layers, [x.self_attn.attention for x in model.model.layers]
    for i, layer in enumerate(layers):
        layer.self_attn.attention = lambda q, k, v, mask, i=i: attend(
            q[0].transpose(0, 1), *pages[i], pieces, tables
        ).transpose(0, 1)[None]
    try:
        mask = torch.ones(1, 1, dtype=torch.bool)
        return model(torch.tensor([ids]), Writes(), torch.tensor(positions), mask)[0]
    finally:
        for layer, old in zip(layers, dense, strict=True):
            layer.self_attn.attention = old
