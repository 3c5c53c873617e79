# %% [markdown]
# # Lab 14: Batching, or what a scheduler decides
#
# ![Two servers with the same model, machine and requests: in A ever more requests wait while the
# batch runs empty again and again, in B nearly all that are inside are
# computed.](../../course/figures/lab14/opening.svg)
#
# **The question.** A and B have the same model, the same GPU and the same requests, and neither is
# idle once it has begun. In A users wait for ten seconds, in B for hundredths of one. **What does B
# decide differently in each step, who pays for it, and when is nothing won?**
#
# Section 6 asks this again. You will answer it with your own numbers.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about four hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | lab 0 (roofline, TTFT, TPOT), lab 6 (blocks); classes in Python |
# | Not covered | priorities and fairness, swapping, several answers to a prompt, lab 18's engine |
#
# After this lab you can
# 1. write the scheduler of a server: continuous, with prompts in pieces, with preemption;
# 2. find the rate that a server stands, and say with controls which decision moves it;
# 3. keep texts in a radix tree, and say when two pools, or another end to drop, are better.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Answer predictions in their field; where no field is shown, by
# `lab.answer("offline", 2)`. Seconds that a cell announces are those of a quiet machine.
#
# ## Map and notation
#
# Section 1, one step: exercise 1. Section 2, prompts in pieces, and the knee: 2 and 3. Section 3,
# memory: 4 and 5. Section 4, two pools: 6. Section 5: your scheduler drives a live model.
#
# | word | in code | meaning |
# |---|---|---|
# | known tokens | `tokens` | of prompt and answer so far |
# | cached tokens | `cached` | those of them with a key and a value in the cache |
# | who runs | `running` | list of `(name, tokens, cached)`, in the order of admission |
# | the line | `waiting` | list of `(name, tokens)`, the next one first |
# | blocks | `free`, `block` | blocks that belong to nobody; tokens of a block |
# | limits | `budget`, `most` | tokens that a step may compute; requests that may run |
# | plan | `work` | list of `(name, n)`: n ≥ 1 tokens of each are computed in this step |
#
# A scheduler here is a **function of plain values**: it is told what runs, what waits and what is
# free, and returns what the next step computes. Whoever calls it (the simulator, the live model)
# does the rest.
#
# ### Rules for all exercises
#
# Names are ints or strings, and none occurs twice. Lists of requests may have some thousand
# entries. No function changes its arguments, nor what it returned before; the class of exercise 5
# changes itself.

# %%
import heapq

import torch

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import batching as pictures
from efflib.plots import explorer, style

lab = Lab("lab14_batching")


# given: static batching, the simplest scheduler, as an example of the interface
def whole_batches(running, waiting, free, budget, most, block):
    """Whoever runs is answered to the end; then as many as may run come together."""
    if running:
        return [(name, 1) for name, _, _ in running]
    return list(waiting[:most])


# %% [markdown]
# ## Baseline
#
# A **simulated** server: Llama-3.1-8B in 16 bits on an H100. A step takes what lab 0's roofline
# says of all its tokens together: weights are read once for all, a cache for each; the larger of
# the two times counts. So numbers are the same for everybody. Requests come at random (a Poisson
# process); lengths are log-normal, with medians of 400 tokens of prompt and 100 of answer. That is
# an example, measured on nothing: `arrivals.read_arrivals` takes a CSV file of your own.
#
# And a **live** one: the course's model on this processor answers 24 short requests, in batches of
# eight. Section 5 comes back to it with your scheduler.

# %% tags=["demo"]
from functools import partial

from efflib.traffic.arrivals import bursts, draw_lengths, poisson
from efflib.traffic.simulate import LLAMA_8B, Arrival, Limits, clock, dynamic, simulate, static
from efflib.traffic.trials import curve, in_eights, in_turn, middle, serve, stands_still, waits

LENGTHS = draw_lengths(800)  # (prompt, answer)
ANY, CHUNKS = 10**9, 512  # tokens a step: no limit; in section 2
found = {}  # the numbers you find, for the takeaways at the end
trace = poisson(30, LENGTHS)
still = serve(whole_batches, trace, static(64))
size = sum(len(step.work) for step in still.steps) / len(still.steps)
print(f"30 requests/s come; static batches of 64 make {still.throughput:.0f} tokens/s, with")
print(f"{size:.1f} requests in a step on average; half wait {middle(waits(still.log)):.1f} s")

# %% tags=["demo"]
from efflib.models.ragged import Engine, fit, fitted_clock, timed
from efflib.traffic.trials import LIVE_CASES, live_requests, pair_of, pools_of

model, tokenizer = zoo.load("target"), zoo.load_tokenizer()
prompts, live_trace = live_requests()
engine = Engine(model, prompts)
live = simulate(live_trace, whole_batches, engine, Limits(ANY, 8), static(8))
written = [text.tolist() for text in engine.texts]
row = 8 * model.config.num_hidden_layers * model.config.num_key_value_heads * model.config.head_dim
print(f"live: {live.throughput:.0f} tokens/s in batches of 8; a token's cache has {row} bytes")
print(tokenizer.decode(written[1])[-150:])
ask = (
    "640 requests are all there, 64 may run at once. How many times as long do static batches take?"
)
lab.predict("offline", ask)

# %% [markdown]
# ## 1. One step
#
# Decoding is bound by reading the weights, and they are read once for a whole batch. So a step with
# 60 requests takes hardly longer than one with 6, and what a server makes per second is the number
# of requests in its steps. Static batches lose them one by one, and nobody joins:
#
# $$ \text{tokens per second} \;=\; \frac{\text{requests in a step}}{\text{seconds of a step}} $$
#
# On four numbers: answers of 6, 8, 6 and 7 tokens are one batch of 8 steps. 27 of its 32 places are
# used, and who comes at step 2 begins at step 9.

# %%
ends = [6, 8, 6, 7]
print(f"{sum(ends)} of {4 * max(ends)} places; in step 8 {sum(e >= 8 for e in ends)} of 4")

# %% [markdown]
# **Continuous batching** (Orca, 2022) decides anew in every step. Yet a prompt of 400 tokens is
# another kind of work than 60 single tokens. The first servers did not mix them: if a prompt can be
# read, a step reads prompts, and who is being answered pauses.
#
# ### Exercise 1 · One step of a continuous scheduler
#
# **30 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `prefill_first(running, waiting, free, budget, most, block) -> work`.
#
# - **Prompts first.** Go along the line. A request is admitted with *all* of its tokens (one entry
#   `(name, tokens)`) if they fit into what is left of the budget; if the free blocks that are left
#   hold them; and if no more than `most` run then, those of `running` included. The first one that
#   does not fit ends it: nobody overtakes.
# - **Else answers.** Only if nobody is admitted: each of `running`, in order, gets one token,
#   `(name, 1)`, as long as the budget lasts. A request has just the blocks that its `cached` tokens
#   need. If the new token needs another block and none is left, this request is passed over in this
#   step, and those behind it go on.
# - `work` is in the order of the line, or of `running`. Nothing to do: an empty list.
#
# All of `running` lack one token here: `tokens == cached + 1`. `free` and `budget` are at least 0,
# `most` and `block` at least 1, no more than `most` run. Numbers may be up to 10^9, too large to
# count by ones.


# %% solution="ex1"
def prefill_first(
    running: list, waiting: list, free: int, budget: int, most: int, block: int
) -> list[tuple]:
    """Whole prompts if one can come, else a token for each that runs: [(name, tokens of it)].

    running: [(name, tokens, cached)]; waiting: [(name, tokens)]; free: blocks of `block` tokens.
    """
    ### BEGIN SOLUTION
    work = []
    for name, tokens in waiting:
        blocks = -(-tokens // block)
        if tokens > budget or blocks > free or len(running) + len(work) >= most:
            break
        work.append((name, tokens))
        budget, free = budget - tokens, free - blocks
    if work:
        return work
    for name, _, cached in running:
        blocks = int(cached % block == 0)  # its last block is full
        if budget and blocks <= free:
            work.append((name, 1))
            budget, free = budget - 1, free - blocks
    return work
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** Two loops over lists, with what is left of budget and blocks. The second one runs only
# if the first has found nobody.
#
# **By hand.** Blocks of 4, 2 free, budget 10, 9 may run. A has 9 tokens of which 8 are cached, B 6
# and 5. C (7 tokens) and D (4) wait. C needs 7 of the budget and 2 blocks; then D needs 4 of the
# 3 that are left: the step is `[("C", 7)]`, and A and B pause. With 1 free block C does not fit, so
# D does not come either: `[("A", 1), ("B", 1)]`. With none, A's two blocks are full and B's are
# not: `[("B", 1)]`.
#
# **The usual error.** `continue` in place of `break`: D overtakes C. Budget or blocks of the first
# admitted not taken off for the second. And `tokens // block + 1`.
# </details>
#
# **Reveal.** All requests there at the beginning, and then three controls. *Sorted*: static
# batches again, of answers of nearly equal length, which an oracle has sorted. *Equal*: all
# prompts and answers have one length. *Low load*: one request every 2 s, with the timeout of
# **dynamic** batching, which starts a batch that is not full after a while, at 0.5 s and at none.
# About 5 s. Then the batch, step by step, at 30 requests a second: move the slider. Who joins, who
# leaves, and what pauses when a prompt comes?

# %% tags=["demo"]
many = draw_lengths(640)
kinds = {"as they come": many, "sorted (oracle)": sorted(many, key=lambda pair: pair[1])}
kinds["equal"] = [(400, 100)] * 640
offline = {}
for name, pairs in kinds.items():
    there = [Arrival(0.0, *pair) for pair in pairs]
    both = serve(whole_batches, there, static(64)), serve(prefill_first, there, budget=8192)
    offline[name] = {"static": both[0].seconds, "continuous": both[1].seconds}
style.show(*pictures.groups(offline, "640 requests, all there: until the last token", "seconds"))
ratio = {name: row["static"] / row["continuous"] for name, row in offline.items()}
lab.reveal("offline", round(ratio["as they come"], 2))

# %% tags=["demo"]
rare = poisson(0.5, LENGTHS[:200])
ways = {"static": (whole_batches, static(64)), "timeout 0.5 s": (whole_batches, dynamic(64, 0.5))}
ways |= {"timeout 0": (whole_batches, dynamic(64, 0.0)), "continuous": (prefill_first, None)}
for name, (schedule, gate) in ways.items():
    run = serve(schedule, rare, gate)
    print(f"{name:14s} {run.throughput:5.1f} tokens/s, first token after", end=" ")
    print(f"{middle(waits(run.log)):7.3f} s (median)")

# %% tags=["demo"]
moving = serve(prefill_first, poisson(30, LENGTHS[:40]), budget=8192, most=24)


def draw(step: float):
    return pictures.batch(moving, int(step), 24, 8192)


explorer.explorer(
    draw, {"step": [float(i) for i in range(0, len(moving.steps), 5)]}, first={"step": 60.0}
)
style.show(*draw(60))  # where nothing can move
lab.predict(
    "pause",
    "At 40 requests a second: by which factor is the p99 of TPOT longer with prompts kept apart "
    "than with prompts in pieces of 512 tokens, mixed with the answers?",
)

# %% [markdown]
# **A sentence to write:** with answers sorted by length static batches do as well as continuous
# ones. Why does no server do that, and what does it say about where continuous batching's gain
# comes from?
#
# *Your sentence:*
#
# ## 2. Prompts in pieces
#
# While a prompt of 2000 tokens is read, 60 users see nothing. And the two kinds of work have
# opposite limits: reading a prompt computes, answering reads weights. Put into one step, weights
# are read once for both. Since Sarathi (2023) servers cut prompts into pieces, and fill each step
# up to a budget of tokens: a token for everybody who is answered, and a piece of a prompt in what
# is left.
#
# There is only one kind of work then: *a request lacks some of its tokens*, one if it is being
# answered, more if its prompt is not read to the end.
#
# $$ \text{lacks} = \text{tokens} - \text{cached} \;\ge\; 1 $$
#
# Who is answered and knows 412 tokens lacks the 412th; a prompt of 1000, half read, lacks 488.
#
# ### Exercise 2 · Chunked prefill
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `mixed_chunks(running, waiting, free, budget, most, block) -> work`; all arguments as
# in exercise 1, but that who runs may lack any number of tokens from 1 on, also all it knows.
#
# - **Who runs**, in order, gets *as many of the tokens that it lacks as the rest of the budget and
#   its room allow*. Its room: what is empty in its last block, and all blocks that are still free.
#   Who gets none does not appear in `work`, and those behind it go on.
# - **Then the line.** A request is admitted if the blocks that are still free hold *all* of its
#   tokens, if the budget is not used up, and if no more than `most` run then. It gets as many
#   tokens as the rest of the budget allows, and takes the blocks of these only. The first one that
#   is not admitted ends it.


# %% solution="ex2"
def mixed_chunks(
    running: list, waiting: list, free: int, budget: int, most: int, block: int
) -> list[tuple]:
    """Who runs with what it lacks, then pieces of prompts, up to the budget: [(name, tokens)]."""
    ### BEGIN SOLUTION
    work = []
    for name, tokens, cached in running:
        empty = -cached % block  # in its last block
        n = min(tokens - cached, budget, empty + free * block)
        if n > 0:
            work.append((name, n))
            budget -= n
            free -= -(-max(n - empty, 0) // block)
    running_now = len(running)
    for name, tokens in waiting:
        if budget == 0 or -(-tokens // block) > free or running_now >= most:
            break
        n = min(tokens, budget)
        work.append((name, n))
        running_now += 1
        budget, free = budget - n, free - -(-n // block)
    return work
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** The least of three numbers for whoever runs: what it lacks, the budget, its room. Its
# new blocks are those of `cached + n` less those of `cached`.
#
# **By hand.** Blocks of 4, 5 free, budget 20. A has 9 tokens, 8 of them cached: 1 token, 1 block. B
# has 20 and 5: it lacks 15, its room is 3 + 4 · 4 = 19, so it gets 15 and takes 3 blocks. 4 of the
# budget and 1 block are left. C waits with 7 tokens, which need 2 blocks: it stays. With 6 free
# blocks it comes: `("C", 4)`, and has taken 1 block.
#
# **The usual error.** Somebody is admitted although only its piece fits. The last block's empty
# rows forgotten, so that a block is taken for every token. `most` compared with those of this step
# only.
# </details>
#
# **Reveal.** The example of the lecture: four rows, a column for each step, one token in each (S1
# to S4 have answers of 6, 8, 6 and 7 tokens). Left static, in the middle prompts apart, right
# mixed: only there nobody pauses when S5, S6 and S7 come, and it is the lecture's chart.

# %% tags=["demo"]
seven = [Arrival(0.0, 1, n) for n in (6, 8, 6, 7, 3, 3, 2)]
tables = {}
for name, schedule, gate in (
    ("static", whole_batches, static(4)),
    ("prompts apart", prefill_first, None),
    ("mixed", mixed_chunks, None),
):
    run = serve(schedule, seven, gate, lambda work: 1.0, most=4)
    tables[name] = pictures.rows_of(run, 4)
style.show(
    *pictures.chart(tables, 8, "Eight steps, four rows, seven requests: only mixed has all in")
)

# %% [markdown]
# Two numbers of a log are needed now, and one question. A log is a list of `(arrival, times)`, with
# the time of every token of a request, in seconds.
#
# ### Exercise 3 · What a rate does to users, and the knee
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** four functions. TTFT is the first token's time less the arrival; TPOT is (last -
# first) / (n - 1), which a request of one token does not have.
#
# - `tails(log) -> dict`: `{"ttft": (p50, p99), "tpot": (p50, p99)}` over requests, in seconds; a
#   percentile lies linearly between its two neighbours (numpy's default). None in place of a pair
#   that no request has a value for.
# - `attained(log, ttft_limit, tpot_limit) -> float`: the share of requests that keep *both* limits.
#   Just at a limit is kept (where a test meets one, differences are exact); without a TPOT that
#   limit is kept. Limits may be `math.inf`.
# - `inside(log) -> float`: how many requests are in the server, waiting or running, on average over
#   the time from the first arrival to the last token of all. A request is inside from its arrival
#   to its last token. Nobody counted at every moment; **derive it from the log.**
# - `knee(points, goal) -> float`: `points` is a list of `(rate, share)` in any order, no rate
#   twice. Up to which rate is the share at least `goal`, *all the way from the lowest rate*?
#   Between two rates the share goes in a straight line. 0.0 if the lowest rate is below the goal
#   already, the highest rate if none is below.
#
# A log has at least one request, each at least one token; the first comes after the arrival, tokens
# come in order. Requests may be in any order. There is at least one point; rates are above 0,
# shares and the goal from 0 to 1.


# %% solution="ex3"
def tails(log: list) -> dict:
    """{"ttft": (p50, p99), "tpot": (p50, p99)} in seconds of a log [(arrival, times)]."""
    ### BEGIN SOLUTION
    values = {
        "ttft": [times[0] - arrival for arrival, times in log],
        "tpot": [(t[-1] - t[0]) / (len(t) - 1) for _, t in log if len(t) > 1],
    }
    result = {}
    for name, row in values.items():
        x = torch.tensor(row, dtype=torch.float64)
        result[name] = tuple(x.quantile(q).item() for q in (0.5, 0.99)) if row else None
    return result
    ### END SOLUTION


def attained(log: list, ttft_limit: float, tpot_limit: float) -> float:
    """The share of requests with TTFT <= ttft_limit and TPOT <= tpot_limit."""
    ### BEGIN SOLUTION
    kept = 0
    for arrival, t in log:
        tpot = (t[-1] - t[0]) / (len(t) - 1) if len(t) > 1 else 0.0
        kept += t[0] - arrival <= ttft_limit and tpot <= tpot_limit
    return kept / len(log)
    ### END SOLUTION


def inside(log: list) -> float:
    """Requests in the server, averaged over the time from the first arrival to the last token."""
    ### BEGIN SOLUTION
    begin, end = min(arrival for arrival, _ in log), max(times[-1] for _, times in log)
    return sum(times[-1] - arrival for arrival, times in log) / (end - begin)
    ### END SOLUTION


def knee(points: list, goal: float) -> float:
    """The rate up to which the share is at least goal, from (rate, share) and straight lines."""
    ### BEGIN SOLUTION
    points = sorted(points)
    for i, (rate, share) in enumerate(points):
        if share < goal:
            if i == 0:
                return 0.0
            low, before = points[i - 1]
            return low + (rate - low) * (before - goal) / (before - share)
    return points[-1][0]
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea of `inside`.** Draw a bar for each request, from its arrival to its last token. The number
# inside at a moment is the number of bars above it; its integral over time is the area of all bars.
# (With it goes Little's law: requests inside = rate · time that each is inside.)
#
# **By hand.** A comes at 0 and has tokens at 1, 2, 4; B comes at 1 and has one at 5. TTFT 1 and 4:
# p50 2.5, p99 3.97. TPOT: only A, 1.5. Inside: (4 + 4) / 5 = 1.6. Limits 1 and 1.5: A keeps both
# just so, share 0.5. Points (1, 1.0), (2, 0.8), goal 0.9: the line crosses at 1.5.
#
# **The usual error.** TPOT divided by n. Two limits, each attained by other requests, counted
# separately. The largest rate at or above the goal, though a lower one fails. Requests in the order
# of arrival taken for granted.
# </details>
#
# **Reveal.** One trace, four servers, rates from 10 to 80 requests a second: what users wait for.
# The requests are the same at all rates, only closer together. About 8 s.

# %% tags=["demo"]
RATES = (10, 20, 30, 40, 50, 60, 70, 80)
servers = {"static": (whole_batches, static(64), ANY)}
servers["dynamic"] = whole_batches, dynamic(64, 0.5), ANY
servers["prompts apart"] = prefill_first, None, 8192
servers["mixed"] = mixed_chunks, None, CHUNKS
logs = {name: curve(server, RATES, LENGTHS) for name, server in servers.items()}
curves = {name: [tails(log) for _, log in row] for name, row in logs.items()}
title = "Static batches wait at any rate; prompts kept apart hold up answers"
style.show(*pictures.over_load(RATES, curves, title))
slow = {name: row[RATES.index(40)]["tpot"][1] for name, row in curves.items()}
lab.reveal("pause", round(slow["prompts apart"] / slow["mixed"], 1))
ask = "Mixed: to which rate do 90 % have their first token in 0.5 s, and 10 ms a token at most?"
lab.predict("knee", ask, unit="requests/s")

# %% tags=["demo"]
LIMITS = (0.5, 0.010)
shares = {name: [attained(log, *LIMITS) for _, log in row] for name, row in logs.items()}
knees = {name: knee(list(zip(RATES, row, strict=True)), 0.9) for name, row in shares.items()}
title = "Goodput: above its knee a server makes tokens that come too late"
style.show(*pictures.knees(RATES, shares, knees, 0.9, title))
lab.reveal("knee", round(knees["mixed"], 1))
full = {name: round(inside(row[RATES.index(30)][1]), 1) for name, row in logs.items()}
print("requests inside, at 30 a second:", full)

# %% [markdown]
# A sceptic has four questions. Is it the *limits*? (Then others move it.) Is it the *draw*? (Other
# seeds.) Is it *burstiness*? And is it the *clock*, in which reading and computing overlap
# perfectly, so that prompts ride along for nothing? In the last group nothing overlaps. About 9 s.
#
# Then: how large a piece? Budgets from 128 to 8192 tokens a step, with the roofline's clock, with
# one that does not overlap, and with 5 ms more for every step (a slow program around the kernels).
# About 6 s.


# %% tags=["demo"]
def knees_for(limits=LIMITS, rates=(30, 45, 60, 75), lengths=LENGTHS, **how):
    rows = {n: curve(servers[n], rates, lengths, **how) for n in ("prompts apart", "mixed")}
    points = {n: [(r, attained(log, *limits)) for r, log in row] for n, row in rows.items()}
    return {n: knee(row, 0.9) for n, row in points.items()}


sceptic = {"as above": {n: knees[n] for n in ("prompts apart", "mixed")}}
sceptic["0.1 s, 25 ms"] = knees_for((0.1, 0.025))
for i in (1, 2):
    again = {"lengths": draw_lengths(800, seed=i), "come": partial(poisson, seed=i)}
    sceptic[f"seed {i}"] = knees_for(**again)
sceptic["bursts of 8"] = knees_for(rates=(20, 30, 45, 60), come=in_eights)
sceptic["no overlap"] = knees_for(rates=(10, 20, 30, 40), seconds=in_turn)
style.show(*pictures.groups(sceptic, "The knee by limits, draw, arrivals, clock", "requests / s"))

# %% tags=["demo"]
SIZES = (128, 256, 512, 1024, 2048, 8192)
clocks = {"roofline, 50/s": (50, clock(LLAMA_8B)), "no overlap, 30/s": (30, in_turn)}
clocks["5 ms a step, 20/s"] = 20, clock(LLAMA_8B._replace(fixed=0.005))
traded = {}
for name, (rate, seconds) in clocks.items():
    crowd = poisson(rate, LENGTHS)
    each = [tails(serve(mixed_chunks, crowd, seconds=seconds, budget=b).log) for b in SIZES]
    traded[name] = [(t["ttft"][1], t["tpot"][1]) for t in each]
title = "Too small a piece and prompts wait; too large and answers do"
style.show(*pictures.trade(SIZES, traded, title))

# %% [markdown]
# **A sentence to write:** the H100's ridge is about 300 FLOPs a byte. What does that say about
# pieces of 128 tokens and of 8192?
#
# *Your sentence:*
#
# ## 3. Memory runs out
#
# So far there were blocks for all. Nobody knows how long answers will be, so a server admits what
# fits *now*, and may find in the middle of many answers that no block is left. In exercise 2 those
# who lack a block pause, and if all do, for ever. What can be done about it is in lab 6's paper:
# take the blocks of somebody, put it back into the line, and compute its tokens again later.

# %%
# four requests, blocks of 4, all full, none free: nobody can go on
print(mixed_chunks([("A", 9, 8), ("B", 5, 4), ("C", 13, 12), ("D", 5, 4)], [], 0, 99, 9, 4))

lab.predict(
    "again",
    "At 40 requests a second, memory for 24,000 tokens (some 20 requests are inside). How many "
    "tokens are computed again, in percent of all that have to be computed once?",
    unit="%",
)

# %% [markdown]
# ### Exercise 4 · Put back, and come again
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** two functions.
#
# - `preempting(running, waiting, free, budget, most, block) -> (work, put_back)`: exercise 2, with
#   one difference. When it is the turn of somebody who runs, budget is left, and *it has no room
#   for even one token*, then the last one in `running` that has not been put back yet is put back:
#   its blocks are free at once. This is repeated until there is room for one token at least, or it
#   was itself the last one and has been put back. Who was put back gets nothing in this step. If
#   anybody is put back, nobody is admitted.
#   `put_back`: their names, in the order in which they were put back.
# - `line_after(running, waiting, put_back) -> waiting`: the line after that. Who was put back
#   stands before all others, in the order in which they were running, with `(name, tokens)`.
#   **Decide** what `tokens` must be: users have seen every token of an answer that was made, and
#   none may come twice, nor differ. `running` is the list *before* the step.
#
# The rule is all: also a request that needs more blocks than there are in all is treated by it. (In
# a whole run there is none, so whoever is alone has room.)


# %% solution="ex4"
def preempting(
    running: list, waiting: list, free: int, budget: int, most: int, block: int
) -> tuple[list[tuple], list]:
    """(work as mixed_chunks, names that lose their blocks, the last of running first)."""
    ### BEGIN SOLUTION
    stay, work, put_back, at = list(running), [], [], 0
    while at < len(stay) and budget > 0:
        name, tokens, cached = stay[at]
        empty = -cached % block
        n = min(tokens - cached, budget, empty + free * block)
        if n > 0:
            work.append((name, n))
            at, budget = at + 1, budget - n
            free -= -(-max(n - empty, 0) // block)
        else:
            last, _, held = stay.pop()
            put_back.append(last)
            free += -(-held // block)
    if not put_back and len(running) < most:
        work += mixed_chunks([], waiting, free, budget, most - len(running), block)
    return work, put_back
    ### END SOLUTION


def line_after(running: list, waiting: list, put_back: list) -> list[tuple]:
    """The line [(name, tokens)] with those who were put back at its head."""
    ### BEGIN SOLUTION
    return [(name, tokens) for name, tokens, _ in running if name in put_back] + list(waiting)
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Go along `running` with an index, on a copy that loses its last entries. Somebody
# without room takes the last entry off, and looks again.
#
# **By hand.** Blocks of 4, none free. A has 9 tokens and 8 cached, B 5 and 4, C 8 and 6. A needs a
# block: C goes, 2 blocks are free. A takes one, B the other: `([("A", 1), ("B", 1)], ["C"])`. C has
# 8 tokens, prompt and answer, and stands at the head of the line as `("C", 8)`. If only A runs on
# its full blocks beside nobody, that is a request for which memory is too small.
#
# **The usual error.** C comes back with its prompt only, and its answer is written a second time.
# The first one is put back in place of the last. Somebody is put back for a block that is needed
# for a *whole* piece, though a part of it has room. Two that were put back change places in the
# line.
# </details>
#
# **Reveal.** Less and less memory, at 40 requests a second. With exercise 2 alone the server stops
# where everybody waits for a block. What is computed again is work that nobody asked for.

# %% tags=["demo"]
crowd, once = poisson(40, LENGTHS), sum(prompt + n - 1 for prompt, n in LENGTHS)
memory = {}
for blocks in (2500, 1800, 1500, 1200):
    stuck = stands_still(mixed_chunks, crowd, budget=CHUNKS, blocks=blocks)
    run = serve(preempting, crowd, back=line_after, budget=CHUNKS, blocks=blocks)
    memory[blocks] = 100 * run.recomputed / once
    print(f"{blocks} blocks: exercise 2 {'stands still' if stuck else 'gets through'},", end=" ")
    print(f"exercise 4 {run.throughput:.0f} tokens/s, TTFT p99 {tails(run.log)['ttft'][1]:.2f} s,")
    print(f"    {memory[blocks]:.1f} % computed again")
lab.reveal("again", round(memory[1500], 1))

# %% [markdown]
# Two of three requests begin with something that has been computed before: the same instructions,
# the same conversation so far. Lab 6 finds full blocks again by their hashes. SGLang keeps texts in
# a **radix tree**: an edge holds the tokens between two places where texts part, and is *cut* where
# a new text parts in its middle. Here tokens are letters:
#
# ```text
# insert "abcdef"         abcdef
# insert "abcxy"          abc -+- def
#                              +- xy
# ```
#
# ### Exercise 5 · A radix tree
#
# **50 minutes · 15 points** · difficulty 5 of 5 ●●●●● · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** a class `Radix`. A text is a list or tuple of ints (any, also below 0), perhaps empty.
#
# | call | does |
# |---|---|
# | `Radix()` | an empty tree |
# | `match(tokens)` | how many of the first tokens are stored, also where that ends within an edge |
# | `insert(tokens)` | stores a text; returns how many of its tokens were new |
# | `hold(tokens)` | somebody computes with what is stored of a text; returns how many tokens |
# | `release(tokens)` | one holder less of just these tokens |
# | `evict(n)` | drops leaves until n tokens or more are gone; returns how many went |
# | `size()` | tokens that are stored |
#
# - **Cut.** `insert` cuts an edge which the text leaves, or in which it ends; the new rest is an
#   edge of its own. `hold` cuts the edge in which what it found ends. `match` cuts nothing. Edges
#   never grow together again.
# - **Used.** Each call of `match`, `insert` and `hold` is later than those before it, and all edges
#   that it went along count as used then, also one in whose middle a match ends. What a cut leaves
#   *behind* was used when it was used before.
# - **Held.** `hold` adds a holder to each edge on its way. A cut edge gives its holders to both of
#   its parts. `release` gets exactly the tokens that a `hold` has found, once for each `hold`.
# - **Evict.** A leaf is an edge behind which nothing is stored. Of the leaves that nobody holds,
#   the one that was used longest ago goes, whole. If its parent edge has no other child, the parent
#   is a leaf then. Repeated until enough is gone or no leaf may go. `n` ≤ 0: nothing goes.
#
# Whole numbers are returned as ints. Two trees know nothing of each other. Texts have some thousand
# tokens, and some thousand edges may lie one behind another; `evict` may look at all leaves.


# %% solution="ex5"
class Radix:
    """Texts that begin alike, stored once; edges are cut where texts part."""

    def __init__(self) -> None:
        ### BEGIN SOLUTION
        self.now = 0
        self.root = {"text": (), "up": None, "down": {}, "used": 0, "held": 0}

    def _edges(self) -> list[dict]:
        found, stack = [], [self.root]
        while stack:
            behind = list(stack.pop()["down"].values())
            found, stack = found + behind, stack + behind
        return found

    def _walk(self, tokens: tuple, cutting: bool) -> tuple[list[dict], int]:
        """(the edges along a text, how many of its tokens they hold); all of them are used now."""
        at, path, n = self.root, [], 0
        while tokens[n : n + 1] and tokens[n] in at["down"]:
            edge = at["down"][tokens[n]]
            text = edge["text"]
            same = 0
            while same < min(len(text), len(tokens) - n) and text[same] == tokens[n + same]:
                same += 1
            if cutting and same < len(text):
                upper = dict(edge, text=text[:same], up=at, down={text[same]: edge})
                at["down"][text[0]] = upper
                edge.update(text=text[same:], up=upper)
                edge = upper
            path.append(edge)
            n += same
            if same < len(text):
                break
            at = edge
        self.now += 1
        for edge in path:
            edge["used"] = self.now
        return path, n
        ### END SOLUTION

    def size(self) -> int:
        """Tokens that are stored."""
        ### BEGIN SOLUTION
        return sum(len(edge["text"]) for edge in self._edges())
        ### END SOLUTION

    def match(self, tokens: list) -> int:
        """How many of the first tokens are stored."""
        ### BEGIN SOLUTION
        return self._walk(tuple(tokens), False)[1]
        ### END SOLUTION

    def insert(self, tokens: list) -> int:
        """Stores a text; how many of its tokens were new."""
        ### BEGIN SOLUTION
        tokens = tuple(tokens)
        path, n = self._walk(tokens, True)
        if n < len(tokens):
            up = path[-1] if path else self.root
            leaf = {"text": tokens[n:], "up": up, "down": {}, "used": self.now, "held": 0}
            up["down"][tokens[n]] = leaf
        return len(tokens) - n
        ### END SOLUTION

    def hold(self, tokens: list) -> int:
        """Whoever computes with a text holds what is stored of it; how many tokens that are."""
        ### BEGIN SOLUTION
        path, n = self._walk(tuple(tokens), True)
        for edge in path:
            edge["held"] += 1
        return n
        ### END SOLUTION

    def release(self, tokens: list) -> None:
        """One holder less of these tokens, which a hold has found."""
        ### BEGIN SOLUTION
        at, n = self.root, 0
        while n < len(tokens):
            at = at["down"][tokens[n]]
            at["held"] -= 1
            n += len(at["text"])
        ### END SOLUTION

    def evict(self, n: int) -> int:
        """Drops the leaves used longest ago that nobody holds, until n tokens went; how many."""
        ### BEGIN SOLUTION
        gone = 0
        while gone < n:
            leaves = [edge for edge in self._edges() if not edge["down"] and not edge["held"]]
            if not leaves:
                break
            oldest = min(leaves, key=lambda edge: edge["used"])
            del oldest["up"]["down"][oldest["text"][0]]
            gone += len(oldest["text"])
        return gone
        ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** An edge is a small object: its tokens, its parent, its children by their first token,
# when it was used, how many hold it. One walk along a text, with or without cutting, serves
# `match`, `insert` and `hold`. A cut makes a new *upper* edge between the parent and the old one:
# so whoever knows the old one still has the end of its text.
#
# **By hand.** insert abcdef: 6 new. match abcx: 3, nothing is cut. hold abcx: 3, now abc is cut off
# and held, def is behind it. insert abcxy: 2 new. evict 1: the leaves are def and xy; def was used
# longest ago and goes whole: 3. evict 9: xy goes, then abc is a leaf, but held: 2. release abc,
# evict 9: 3, and size is 0.
#
# **The usual error.** A cut that forgets the holders of one of its parts. `match` that stops at
# whole edges. A leaf that goes because *it* is old, although somebody holds it. The parent of the
# last leaf that is never looked at again.
# </details>
#
# **Reveal: which end?** A tree drops tails. Pensieve (2023) does the opposite: it drops *leading*
# tokens of conversations, and computes them again while the rest is still cached, because a token
# is the cheaper the fewer it sees. Whoever is idle longest loses first. From bar to bar one thing
# changes: the end (tails, in the same pieces of 32 tokens), whole leaves (your tree, nothing
# shared), sharing (your tree). Two kinds of traffic, each in three sizes of memory: few
# conversations, very long; and many, short, that begin with the same 4,000 tokens of instructions.
# Costs are FLOPs of prompts. About 10 s.

# %% tags=["demo"]
from efflib.traffic.dropping import conversations, four_ends

lab.predict(
    "end", "Long ones, nothing in common, half the room: FLOPs saved if leading ones go?", "%"
)
traffic = {"long": conversations(8, 12, 3000, 0), "alike": conversations(60, 4, 300, 4000)}
ends = {}
for kind, turns in traffic.items():
    for part in (0.9, 0.5, 0.25):
        ends[f"{kind}\n{part:.0%}"] = four_ends(turns, Radix, part, LLAMA_8B)
style.show(*pictures.groups(ends, "Which end to drop, by room", "PFLOP of all prompts", log=True))
row = ends["long\n50%"]
found["end"] = 100 * (1 - row["leading go"] / row["tails go, in pieces"])
found["leaves"] = 100 * (row["whole leaves, apart"] / row["tails go, in pieces"] - 1)
lab.reveal("end", round(found["end"], 1))

# %% [markdown]
# **A sentence to write:** which of the two kinds of traffic decides between the ends by *what a
# token costs*, and which by *who shares it*?
#
# *Your sentence:*
#
# ## 4. Two pools
#
# Mixed pieces make prompts and answers share each step. The other way out is to keep them on
# machines of their own: one reads prompts, the cache crosses a link, the other answers (DistServe,
# Splitwise). Nobody disturbs anybody. But memory and weights are there twice, a pool that waits
# cannot help the other, and bytes have to move:

# %%
row_bytes, tokens = 131072, 400  # Llama-3.1-8B
for link, speed in (("NVLink", 450e9), ("400 Gb/s network", 50e9), ("10 Gb/s network", 1.25e9)):
    print(f"{tokens} tokens over {link}: {1e3 * tokens * row_bytes / speed:.2f} ms")

lab.predict(
    "pools",
    "Two GPUs, limits as before. Two servers with mixed pieces, each for half of the requests, "
    "have twice the knee of one. What has one GPU for prompts and one for answers?",
    unit="requests/s",
)

# %% [markdown]
# ### Exercise 6 · Prefill and decoding apart
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions. Times are seconds on one clock; all lists of a call are of one
# length, one entry for each request, perhaps empty; results are in the order of the arguments.
#
# - `prefill_pool(arrivals, seconds, workers) -> ends`: when each prompt has been read. Each of
#   `workers` machines (at least 1) reads one prompt at a time, which takes `seconds[i]`. Prompts
#   are begun in the order of the list, whose arrivals never fall, each as soon as it is there and a
#   machine is free.
# - `hand_over(ends, sizes, bandwidth) -> ready`: when each cache has crossed the link, which
#   carries one at a time, `sizes[i]` bytes at `bandwidth` bytes a second, in the order in which
#   prompts are *ready to go* (`ends`; those that end together in the order of the list).
# - `decode_pool(ready, cached, left, most, step) -> times`: a list of times for each request, one
#   for each of its `left[i]` further tokens. One batch goes from step to step. At the beginning of
#   a step all who are ready by then join, in the order of `ready` (equal ones in the order of the
#   list), while no more than `most` (at least 1) are in it. A step takes `step(rows)` seconds,
#   where
#   `rows` lists the tokens in the cache of each in the batch, in the order in which they joined:
#   `cached[i]` at first, one more after each step. At its end each has one token more; who has all
#   leaves. Whoever has none left to make never joins. If nobody is in the batch, the clock jumps to
#   the next who is ready; `step` is never called for nobody.


# %% solution="ex6"
def prefill_pool(arrivals: list, seconds: list, workers: int) -> list[float]:
    """When each prompt is read, by the first machine that is free."""
    ### BEGIN SOLUTION
    free, ends = [0.0] * workers, []
    for arrival, takes in zip(arrivals, seconds, strict=True):
        ends.append(max(arrival, heapq.heappop(free)) + takes)
        heapq.heappush(free, ends[-1])
    return ends
    ### END SOLUTION


def hand_over(ends: list, sizes: list, bandwidth: float) -> list[float]:
    """When each cache is there, over a link that carries one at a time."""
    ### BEGIN SOLUTION
    ready, link = [0.0] * len(ends), 0.0
    for i in sorted(range(len(ends)), key=lambda i: ends[i]):
        ready[i] = link = max(link, ends[i]) + sizes[i] / bandwidth
    return ready
    ### END SOLUTION


def decode_pool(ready: list, cached: list, left: list, most: int, step) -> list[list[float]]:
    """The times of each request's further tokens, decoded in one batch of at most `most`."""
    ### BEGIN SOLUTION
    order = sorted((i for i in range(len(ready)) if left[i] > 0), key=lambda i: ready[i])
    times, batch, now = [[] for _ in ready], [], 0.0
    while order or batch:
        if not batch:
            now = max(now, ready[order[0]])
        while order and ready[order[0]] <= now and len(batch) < most:
            batch.append(order.pop(0))
        now += step([cached[i] + len(times[i]) for i in batch])
        for i in batch:
            times[i].append(now)
        batch = [i for i in batch if len(times[i]) < left[i]]
    return times
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** A pool of machines is a list of the moments at which they are free: the next prompt gets
# the earliest. A link is a pool of one whose line is in another order.
#
# **By hand.** Two machines; prompts come at 0, 0, 1 and take 4, 1, 1: they end at 4, 1, 2. Bytes 2,
# 2, 2 at 1 byte a second: the second crosses from 1 to 3, the third from 3 to 5, the first from 5
# to 7. Decoding, steps of 1, one at a time, left 1, 2, 1: the second has 4 and 5, the third 6, the
# first 8.
#
# **The usual error.** The link in the order of the list. The clock that jumps back to somebody who
# has long been ready. `cached` not growing, or the batch sorted anew in each step.
# </details>


# %% [markdown]
# **Reveal.** Two GPUs, the same requests, at most 128 at once on both sides. *Prompts first* is how
# servers shared GPUs when the papers were written. Two shapes of traffic, other limits, and the
# clock in which nothing overlaps. A knee at the highest rate tried is a bound from below. About
# 9 s.


# %% tags=["demo"]
from efflib.traffic.traces import Lengths

mine = prefill_pool, hand_over, decode_pool
SETS = {"2 mixed": pair_of(servers["mixed"]), "1 + 1": pools_of(*mine)}
SETS["2, prompts first"] = pair_of(servers["prompts apart"])
GIVEN = {"400 in, 100 out": (LENGTHS, clock(LLAMA_8B), (30, 60, 90, 110, 130, 150))}
GIVEN["no overlap"] = LENGTHS, in_turn, (30, 45, 60, 75, 90)
long_ones = draw_lengths(800, Lengths(1500, 0.5, 4096), Lengths(30, 0.8, 512))
GIVEN["1500 in, 30 out"] = long_ones, clock(LLAMA_8B), (15, 30, 45, 60, 75)
logs2 = {}
for case, (pairs, seconds, rates) in GIVEN.items():
    crowds = [(rate, poisson(rate, pairs)) for rate in rates]
    for name, make in SETS.items():
        logs2[case, name] = [(rate, make(crowd, seconds)) for rate, crowd in crowds]

# %% tags=["demo"]
first = "400 in, 100 out"
asked = {case: (case, LIMITS) for case in GIVEN} | {"6 ms": (first, (0.5, 0.006))}
asked["0.05 s"] = first, (0.05, 0.01)
pools = {label: {} for label in asked}
for label, (case, limits) in asked.items():
    for name in SETS:
        pools[label][name] = knee([(r, attained(g, *limits)) for r, g in logs2[case, name]], 0.9)
style.show(*pictures.groups(pools, "Two GPUs, shared or divided: the knee", "requests / s"))
lab.reveal("pools", round(pools[first]["1 + 1"], 1))
for link in (450e9, 50e9, 5e9, 1.25e9):
    log = pools_of(*mine, link=link)(trace, clock(LLAMA_8B))
    second = middle([t[1] - t[0] for _, t in log if len(t) > 1])
    print(f"link {link / 1e9:6.2f} GB/s: second token after {1e3 * second:8.1f} ms (median)")

# %% [markdown]
# ## 5. Your scheduler in the live model
#
# The same 24 requests as in the baseline, the course's model on this processor, eight at a time.
# All new tokens of a step go through the matrices together; attention goes sequence by sequence
# (`efflib.models.ragged`). The clock of arrivals moves by the processor seconds that a step really
# took. The simulator's clock is fitted before: a step takes a + b requests + c tokens + d keys,
# from eleven timed steps of other shapes. About 8 s.

# %% tags=["demo"]
parts = fit(LIVE_CASES, timed(model, LIVE_CASES, repeats=5))
a, b, c, d = (1e3 * x for x in parts)
print(f"a step: {a:.2f} ms + {b:.3f} a request + {c:.3f} a token + {d:.5f} a key")
lab.predict("live", "How many times as many tokens per second as static has your mixed one, live?")

# %% tags=["demo"]
ways = {"static": (whole_batches, static(8), None, Limits(ANY, 8))}
ways["dynamic"] = whole_batches, dynamic(8, 0.05), None, Limits(ANY, 8)
ways["prompts apart"] = prefill_first, None, None, Limits(512, 8)
ways["mixed"] = mixed_chunks, None, None, Limits(48, 8)
ways["preempting"] = preempting, None, line_after, Limits(48, 8, 8, 40)
speeds = {}
for name, (schedule, gate, back, limits) in ways.items():
    engine = Engine(model, prompts)
    run = simulate(live_trace, schedule, engine, limits, gate, back)
    told = simulate(live_trace, schedule, fitted_clock(parts), limits, gate, back)
    speeds[name] = {"live": run.throughput, "simulated": told.throughput}
    same = [text.tolist() for text in engine.texts] == written
    print(f"{name:13s} texts as in the baseline: {same}; again {run.recomputed}", flush=True)

# %% tags=["demo", "fold"]
off = max(abs(v["simulated"] / v["live"] - 1) for v in speeds.values())
orders = [sorted(speeds, key=lambda n, w=w: speeds[n][w]) for w in ("live", "simulated")]
title = f"Live and simulated: at most {off:.0%} apart"
style.show(*pictures.groups(speeds, title, "tokens / s"))
print("slowest first, live:     ", ", ".join(orders[0]))
print("slowest first, simulated:", ", ".join(orders[1]))
found["live"] = speeds["mixed"]["live"] / speeds["static"]["live"]
lab.reveal("live", round(found["live"], 2))

# %% [markdown]
# What the simulator leaves out: Python between the steps, a processor that others use too (the
# steps of the fit may have been quieter ones than the run's), caches of the processor that are warm
# in the fit. Neighbours in the order that differ by less than its error may change places. Every
# text is the same under every scheduler, put back or not: who computes when must not decide what.
#
# ## 6. Misconceptions
#
# <details><summary>Sentences, to compare yours with</summary>
#
# **Section 1.** Nobody knows how long an answer will be, and sorting needs all requests to be
# there. Continuous batching gains what static batches lose by unequal lengths, and the waiting for
# a batch; where neither is there, it gains nothing.
#
# **Section 2.** Up to about 300 tokens a step reads its weights longer than it computes, so a step
# of 128 leaves the processor idle; one of 8192 computes 30 times as long as it reads, and all
# answers wait for it.
#
# **Section 3.** Long conversations decide by what a token costs, and only as far as attention is a
# good part of it; the instructions are shared, and a policy that drops them loses all of them.
# </details>
#
# **"Continuous batching makes the GPU faster."** No step is faster. There are more requests in
# each, and at equal lengths, all there at the beginning, it gives the same times to the last digit.
#
# **"Throughput says which server is better."** Below the knee all of them make as many tokens per
# second as are asked for. What differs is who waits; above it, a server that makes more tokens may
# have nobody who is served in time.
#
# **"Smaller pieces are always kinder to answers."** Below the ridge a step is hardly shorter, and
# prompts need more of them: with 128 tokens a step they wait for seconds in all three clocks.
#
# **"A knee is a property of the server."** Of a server, lengths, limits, and a trace that is long
# enough: 400 requests at 80 a second are over in five seconds, before the line has grown.
#
# **"Preempted requests lose their answer."** They lose their keys and values. Prompt and answer so
# far are one text, which is read again as a prompt would be.
#
# **"Prefill apart from decoding doubles what two GPUs serve."** Look at your knees: the pool that
# fits the traffic less decides.
#
# ### Open task (not graded)
#
# **Beat it:** a scheduler for bursts. 800 requests come in bursts of 60, at 45 a second, in 1500
# blocks. Score: requests within both limits, per second; to beat is your exercise 4. Ideas:
# shortest prompt first (who starves?); a budget that follows how many are answered; blocks kept
# free at admission; whom to put back. `tokens` and `cached` are all that you may know.


# %% tags=["demo"]
def own(running, waiting, free, budget, most, block):
    """Yours: (work, put_back). It starts as exercise 4."""
    return preempting(running, waiting, free, budget, most, block)


storm = bursts(45, LENGTHS, 60)
score = {}
for name, schedule in (("exercise 4", preempting), ("yours", own)):
    run = serve(schedule, storm, back=line_after, budget=CHUNKS, blocks=1500)
    score[name] = 45 * attained(run.log, *LIMITS)
    print(f"{name:10s} {score[name]:5.2f} requests/s in time, {run.recomputed} tokens again")
found["open task"] = score["yours"]

# %% [markdown]
# ## 7. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** What does a continuous server decide in each step that a
# static one does not, who pays for it, and when is nothing won? *Rubric:* where static batches
# lose: places that are empty, and waiting for the batch (1); your numbers at a rate where both are
# loaded, tokens or first tokens (1); who pays when prompts come in between, with your TPOT or
# knees apart and mixed (1); a case where nothing is won, with your number (1); what mixed pieces
# gain when nothing overlaps in the clock, or what other control of yours weakens the comparison
# (1).
#
# **Question 2.** A colleague has two GPUs and long conversations: "We put prompts on one GPU and
# answers on the other, as the papers do, take the largest pieces, and keep a radix cache, so
# nothing is ever computed twice." What do you answer, and what must be measured first? *Rubric:*
# your knees of two mixed GPUs and of 1 + 1 (1); on what it depends which is better, with another
# shape or limit of yours (1); what the size of a piece trades, with two of your numbers (1); what a
# full cache computes again, and that the end to drop depends on the traffic, with a number (1);
# what must be measured on their own traffic (1).

# %% [markdown] written="w1"
# A continuous server asks in every step who joins; a static one only when the last of a batch has
# ended. So static batches run empty, one by one, and whoever comes waits for the whole batch: 640
# requests that were all there took 40 s and not 15, and at 30 requests a second half of all waited
# for 13 s, not for 0.01. It is paid for by those who are being answered: while a prompt is read
# in a step of its own they pause, and at 40 a second the p99 of TPOT was 2.3 times that with mixed
# pieces; the knee was 37 requests a second with prompts apart and 64 mixed. Nothing is won where
# all answers have one length and all requests are there: 9.19 s both ways, and sorted by an oracle
# static batches took 16.6 s beside 16.8. At one request in two seconds throughput is the same for
# all. Part of what mixed pieces gain is the clock's: if reading and computing never overlap the
# knees are 22 and 31, so about a third is left of the 27 that lie between 37 and 64.

# %% [markdown] written="w2"
# With limits of 0.5 s and 10 ms two mixed GPUs stood 145 requests a second, one for prompts and one
# for answers 116, and two that read prompts first 73: apart is better than what it was invented
# against, and not better than pieces. It depends on the traffic: with prompts of 1500 and answers
# of 30 tokens the one reader is the limit, 32 against 73; in a clock without overlap it is the
# other way round, 79 apart against 65. The largest piece is not the best: at 50 a second pieces of
# 512 had 7.2 ms a token at p99, of 8192 12.3 ms, and of 128 tokens 5.4 ms, but a first token only
# after 5.7 s. A full cache does compute again: at half of the room the long conversations cost 14.8
# PFLOP with tails dropped, 15.5 if whole leaves go, and 14.3 with leading tokens dropped; where all
# share their instructions the tree has 1.35, and leading tokens dropped 15.4. I would
# measure the lengths of their prompts and answers, how much they share, how bursty they come, the
# speed of the link, and the time of a mixed step on their GPU, and then the knees at their limits.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Fair.** One user sends half of all requests. Give each user a share of the budget (VTC, 2024).
# - **Longest prefix first.** SGLang lets those of the line go first whose prefix is in the tree.
#   When does it starve somebody?
# - **Room kept free.** Admit only while 5 % of the blocks stay free. What does it do to section 3?
# - **Swap.** Put back by copying to the CPU's memory: from which length on is it cheaper?
#
# **Next:** lab 17 divides one model among GPUs; lab 18 runs your scheduler in an engine.
#
# **Sources.** Yu et al., *Orca*, OSDI 2022. Kwon et al., *PagedAttention*, 2023 (arXiv:2309.06180).
# Agrawal et al., *Sarathi*, 2023 (arXiv:2308.16369), and *Sarathi-Serve*, 2024 (arXiv:2403.02310).
# Zhong et al., *DistServe*, 2024 (arXiv:2401.09670). Patel et al., *Splitwise*, 2023
# (arXiv:2311.18677). Zheng et al., *SGLang*, 2023 (arXiv:2312.07104). Yu et al., *Pensieve*, 2023
# (arXiv:2312.05516). Sheng et al., *VTC*, 2024 (arXiv:2401.00588). Little, *A proof for L = λW*,
# 1961. MIT 6.5940, lectures on LLM deployment. The code of vLLM, nano-vllm and SGLang.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo", "fold"]
lab.report()
pair, clockless = pools[first], sceptic["no overlap"]
takeaways = [
    f"640 requests, all there: static {ratio['as they come']:.2f} times as long; sorted "
    f"{ratio['sorted (oracle)']:.2f}, of equal lengths {ratio['equal']:.2f}.",
    "Knees: " + ", ".join(f"{n} {v:.0f}" for n, v in knees.items()) + " requests/s.",
    f"No overlap in the clock: {clockless['prompts apart']:.0f} apart, "
    f"{clockless['mixed']:.0f} mixed.",
    f"p99 of TPOT at 40/s: {slow['prompts apart'] / slow['mixed']:.1f} times with prompts apart.",
    "Computed again: " + ", ".join(f"{b} blocks {v:.0f} %" for b, v in memory.items()) + ".",
    f"Leading tokens dropped: {found['end']:.0f} % fewer FLOPs in long ones, half the room; "
    f"whole leaves dropped: {found['leaves']:.0f} % more.",
    f"Two GPUs: mixed {pair['2 mixed']:.0f}, apart {pair['1 + 1']:.0f} requests/s.",
    f"Live: mixed {found['live']:.2f} times static; the simulator is off by up to {off:.0%}.",
    f"Open task: {found['open task']:.1f}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
