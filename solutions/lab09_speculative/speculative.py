# %% [markdown]
# # Lab 9: Speculative decoding
#
# ![A piece of Python, token by token. More than half of the tokens are on blue; the others are in
# bold.](../../course/figures/lab09/opening.svg)
#
# **The question.** A small model guessed the tokens on blue. It is bad at writing: alone it makes
# nonsense. A large model read the guesses, several at a time, and where one was wrong it wrote its
# own, in bold. (A dot is a blank, an arrow the end of a line.)
# **How can the text be, token by token and probability by probability, what the large model would
# have written alone? And how much time is there to win?**
#
# At the end you answer it with the numbers of your own code. The answer is graded.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 and a half hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | sampling from a softmax; what a KV cache is (lab 5) |
# | Not covered | training a draft (lab 15), batches, GPUs |
#
# After this lab you can
# 1. verify guesses so that nothing is lost, and prove it for a vocabulary of three tokens;
# 2. write the loop with both caches, and say how many passes it takes;
# 3. compute the best draft length from three measured numbers, and say when nothing can be won.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Exercise 4 calls your exercise 2. Answer predictions in their
# field; where no field is shown, by `lab.answer("passes", 50)`.
#
# ## Map and notation
#
# Section 1, verification: exercises 1 and 2. Section 2, speed: 3. Section 3, the loop: 4. Section
# 4, other guesses: 5 and 6.
#
# | word | in code | meaning |
# |---|---|---|
# | target | `p` [V] | the large model; its distribution of the next token |
# | draft | `q` [V] | the small one, and its distribution |
# | γ | `gamma` | how many tokens are proposed in a round |
# | proposals | `proposed` [g] | what the draft drew; g is γ or less |
# | a | `a` | probability that a proposal is accepted |
# | c | `c` | what a pass of the draft costs, in passes of the target |
# | w | `w` | what one more token in a pass of the target costs, in the same unit |
# | pass | | one call of a model, for however many tokens |
#
# Your code draws nothing itself. Two functions are handed to it: `coin(chance)` is True with that
# probability, from 0 to 1, and `pick(probabilities)` gives a token, an int, drawn from
# probabilities [V]. So a test can try *every* way that chance may go, and add up exactly.
#
# ### Rules for all exercises
#
# Functions change no argument, and nothing that they returned before. What they return is the
# caller's to write into: the next call makes it anew. A tensor may be a view of a larger one, V is
# 1 or 130,000 as well as 4, and no argument holds NaN. A text has up to 5000 tokens; proposals, new
# tokens, the nodes of a tree and whatever else is counted are 400 at most.

# %%
import torch
from torch import Tensor

from efflib import zoo
from efflib.decoding.reader import reader, spent
from efflib.decoding.replay import replay, rounds, same_choice, shuffled
from efflib.lab import Lab
from efflib.models import Llama
from efflib.plots import explorer, speculation, style

lab = Lab("lab09_speculative")


def coin(chance) -> bool:
    """True with probability chance."""
    return bool(torch.rand(()) < chance)


def pick(probabilities: Tensor) -> int:
    """A token, drawn from probabilities [V]."""
    return int(torch.multinomial(probabilities, 1))


# %% [markdown]
# ## Baseline
#
# The course's target, and its draft. Each writes greedily; a pass of the target reads all of its
# weights, for one token.

# %% tags=["demo"]
import time

from efflib.decoding.sampling import generate

target, draft = zoo.load("target"), zoo.load("draft")
tokenizer = zoo.load_tokenizer()
found = {}  # the numbers you find, for the takeaways at the end
prompt = [zoo.BEGIN_ID, *tokenizer.encode(zoo.PROMPTS[1]).ids]
for name, model in (("target", target), ("draft", draft)):
    start = time.perf_counter()
    ids = generate(model, torch.tensor([prompt]), 40)[0].tolist()
    each = 1e3 * (time.perf_counter() - start) / 40
    size = sum(p.numel() for p in model.parameters())
    print(f"--- {name}: {4 * size / 1e6:.1f} MB of weights, 40 passes, {each:.1f} ms each")
    print(tokenizer.decode(ids[1:]))

# %% [markdown]
# ## 1. Verification
#
# A pass over g + 1 tokens gives g + 1 distributions at once, one behind each token. So the target
# can look at g guesses in the time of about one pass. Greedily that is simple: it compares each
# guess with its own choice, and where they first differ it puts its own. Behind a row of right
# guesses it has one more to give.

# %% tags=["demo"]
# three guesses, and what the target says behind the text and behind each guess
guesses, own = [3, 1, 4], [3, 1, 5, 9]
right = [a == b for a, b in zip(guesses, own, strict=False)]
print(f"right: {right}; the round gives {own[:3]}: two guesses and the target's own third token")
lab.predict(
    "passes",
    "The draft proposes four tokens at a time, and the target checks them in one pass. How many "
    "passes of the target do 40 tokens take, if not a single token may differ?",
    unit="passes",
)

# %% [markdown]
# ### Exercise 1 · Greedy verification
#
# **15 minutes · 15 points** · difficulty 1 of 5 ●○○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `verify_greedy(proposed, logits) -> tokens`: what one round gives.
#
# - Row i of `logits` stands behind `proposed[:i]`, and says what the target would write there: the
#   largest logit, of equal ones the first.
# - The round gives all proposals up to the first that differs, and then *one* token of the target's
#   own. So there are 1 to g + 1 tokens, and if all agree the last one is the **bonus**.
# - A guess behind a wrong one is worth nothing, even if it agrees with its row. Why?
#
# **Shapes** `proposed` int64 [g], perhaps empty; `logits` [g + 1, V] of any float dtype, bfloat16
# (which NumPy does not have) and float16 as well, perhaps with -inf; `tokens` int64 [1 .. g + 1].


# %% solution="ex1"
def verify_greedy(proposed: Tensor, logits: Tensor) -> Tensor:
    """The tokens of a greedy round: int64 [1 .. g + 1]. proposed [g], logits [g + 1, V]."""
    ### BEGIN SOLUTION
    own = logits.argmax(-1)  # [g + 1]
    agree = (own[:-1] == proposed).long().cumprod(0)  # 1 up to the first that differs
    return own[: int(agree.sum()) + 1]
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** Both sides are rows of numbers of nearly the same length. You need the length of their
# common beginning, and one more of the target's.
#
# **By hand.** Proposed 3 1 4, own choices 3 1 5 9: common beginning 2, result 3 1 5. Own choices
# 2 1 4 7: nothing in common at the beginning, result 2, although the 1 and the 4 agree: the rows
# behind the wrong 3 are about a text that will never be.
#
# **The usual error.** Counting how many agree *anywhere*. Or forgetting the token behind the
# accepted ones: a round with no right guess would give nothing, and the loop would never end.
# </details>
#
# ### When the target samples
#
# At temperature 0 there is one right token. When the target *samples*, the text must be a sample
# of p. A token that was drawn from q comes too often where q > p, and too rarely elsewhere. So keep
# the proposal x with probability
#
# $$ \min\!\left(1, \frac{p(x)}{q(x)}\right), $$
#
# and otherwise draw another token, from some distribution r. Which r makes the sum right?

# %%
# p and q of four tokens; how often a proposal x is drawn from q and kept
p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.6, 0.1, 0.1])
kept = q * (p / q).clamp(max=1)
print("drawn and kept", kept.tolist())
print(f"kept in all {kept.sum():.2f}, so a rejection has probability {1 - kept.sum():.2f}")

# %% [markdown]
# ### Exercise 2 · Rejection sampling, derived
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `residual(p, q) -> r` and `verify(proposed, q, p, coin, pick) -> tokens`.
#
# - `residual`: the distribution to draw from after a rejection. Derive it: a token x comes out
#   either as a proposal that is kept, or after a rejection, and the two together must be p(x).
#   Where nothing is missing (p = q), nothing is rejected but by rounding: then return p (itself or
#   a copy). Less than 1e-12 in all is rounding, too, and may count as nothing. No NaN, ever, and no
#   constant added against it: what is missing beyond that, however little, is exact.
# - `verify`: one round. Proposals are judged in their order, by `coin`, with the chance above; it
#   is never more than 1, and where it is 0 or 1 you may ask or not. The first that is refused ends
#   the round with one `pick` from the residual of its row (a coin for one behind it counts for
#   nothing). If all are kept, one more is picked from the last row of p. `proposed[i]` was drawn
#   from `q[i]`, so `q[i, proposed[i]] > 0`. However many there are, and however small or large a
#   chance is: each is judged by it.
# - p and q have one dtype, float32 or float64, and so have the residual and what is picked from.
#   You may compute in float64 on the way, but never in less than comes.
#
# **Shapes** `p`, `q`, `r` [V] in `residual`. In `verify`: `proposed` int64 [g], perhaps empty; `q`
# [g, V]; `p` [g + 1, V]; `tokens` int64 [1 .. g + 1].


# %% solution="ex2"
def residual(p: Tensor, q: Tensor) -> Tensor:
    """What a rejection draws from, [V]; p where that would be nothing."""
    ### BEGIN SOLUTION
    rest = (p - q).clamp(min=0)
    total = rest.sum()
    return rest / total if total > 0 else p.clone()
    ### END SOLUTION


def verify(proposed: Tensor, q: Tensor, p: Tensor, coin, pick) -> Tensor:
    """The tokens of a round, distributed as p: int64 [1 .. g + 1].

    proposed [g], drawn from q [g, V]; p [g + 1, V]; coin(chance) -> bool; pick([V]) -> int.
    """
    ### BEGIN SOLUTION
    kept, last = len(proposed), p[-1]
    for i, token in enumerate(proposed.tolist()):
        if not coin(min(1.0, float(p[i, token] / q[i, token]))):
            kept, last = i, residual(p[i], q[i])
            break
    return torch.cat([proposed[:kept], proposed.new_tensor([pick(last)])])
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Write down, for one x, the probability that it is proposed *and* kept. What is missing
# to p(x)? For which x is nothing missing? What do the missing parts sum to?
#
# **By hand.** The cell above. Token 0 is proposed in 0.2 of all cases and always kept; it has to
# come in 0.5. Token 1 is kept in 0.3 of all cases, which is just what it should have. A
# rejection happens in 0.4 of all cases. Token 0 lacks 0.3 and token 2 lacks 0.1: so after a
# rejection token 0 must come three times in four.
#
# **The usual errors.** Drawing again from p: token 1, which q likes too much, comes too often. The
# residual not divided by its sum. Rows mixed up: the residual of row i belongs to the proposal i.
# </details>

# %% tags=["demo"]
from efflib.decoding.sampling import GREEDY, Sampling, filtered_probabilities

names = ["low", "high", "mid", "never"]


def both(temperature: float):
    """p of the cell above, and q made flatter or sharper by a temperature."""
    bent = filtered_probabilities(q.log(), Sampling(temperature))
    head = f"Draft at temperature {temperature:g}: what is shared is accepted"
    return speculation.overlap(names, p.tolist(), bent.tolist(), residual(p, bent).tolist(), head)


explorer.explorer(both, {"temperature": [1.0, 0.25, 0.5, 2.0, 4.0]})
style.show(*both(1.0))  # where nothing can move

# %% [markdown]
# **Then write one sentence:** what happens to the area that both share, and to the residual, when
# the draft gets very sure of itself? (Compare: below exercise 3.)
#
# *Your sentence:*
#
# ## 2. How much time is there to win?
#
# Say each proposal is accepted with probability a, independently of the others. A round with g
# proposals gives at least one token; two if the first is accepted, three if the second is, too; and
# so on. It costs g passes of the draft and one of the target, which is a little longer than a plain
# one, since it checks g more tokens. In units of a plain pass of the target:
#
# $$ S \;=\; \frac{\text{tokens of a round}}{1 + g\,(c + w)} $$

# %% tags=["demo"]
# a = 0.8, three proposals: how often a round gives at least 1, 2, 3, 4 tokens
a, least = 0.8, []
for accepted in range(4):
    least.append(a**accepted)
print("at least 1, 2, 3, 4 tokens:", [f"{x:.3f}" for x in least])
lab.predict(
    "slower",
    "a = 0.8, c = 0.05, w = 0.02: with 5 proposals the formula gives 2.7 times the speed of plain "
    "decoding. With 50 it is",
    options=["faster still", "slower than with 5, faster than plain", "slower than plain"],
)

# %% [markdown]
# ### Exercise 3 · Expected tokens, speed-up, best draft length
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** four functions that return Python numbers.
#
# - `acceptance_rate(p, q) -> float`: the probability that a token drawn from q is accepted, with p
#   and q [V]. Derive it from the rule of exercise 2. Between 0 and 1 but for rounding, and the same
#   if p and q are exchanged.
# - `expected_tokens(a, gamma) -> float`: the mean number of tokens of a round. Right for a = 0 and
#   a = 1, too.
# - `speedup(a, gamma, c, w) -> float`: S of the formula above. With gamma = 0 it is 1.
# - `best_gamma(a, c, w, most) -> int`: the gamma from 0 to `most`, both included, with the largest
#   speed-up, by however little; of equal ones the smallest. 0 says: do not speculate.
#
# a is from 0 to 1 (1 itself, or at least 1e-9 away from it), c and w are at least 0; round nothing.
# What float64 rounds in your formula may decide, and nothing larger: so the smallest counts where
# no step rounds (a = c = 0.5, w = 0), while a tie of decimals (a = 0.8, c = 0.1, w = 0.7) may fall
# either way. Near a = 1 the closed formula will do. `p` and `q` are both float32 or both float64,
# and may be added up as they are.


# %% solution="ex3"
def acceptance_rate(p: Tensor, q: Tensor) -> float:
    """The probability that a token drawn from q [V] is accepted, where p [V] is wanted."""
    ### BEGIN SOLUTION
    return float(torch.minimum(p, q).sum())
    ### END SOLUTION


def expected_tokens(a: float, gamma: int) -> float:
    """Mean tokens of a round with gamma proposals, each accepted with probability a."""
    ### BEGIN SOLUTION
    return float(sum(a**i for i in range(gamma + 1)))
    ### END SOLUTION


def speedup(a: float, gamma: int, c: float, w: float) -> float:
    """Tokens per second over those of plain decoding."""
    ### BEGIN SOLUTION
    return expected_tokens(a, gamma) / (1 + gamma * (c + w))
    ### END SOLUTION


def best_gamma(a: float, c: float, w: float, most: int) -> int:
    """The gamma from 0 to most with the largest speed-up; of equal ones the smallest."""
    ### BEGIN SOLUTION
    return max(range(most + 1), key=lambda gamma: speedup(a, gamma, c, w))
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Of a number that is at least 1, 2, 3, ... with known probabilities, the mean is the sum
# of these probabilities. For the rate: sum over all x the probability that x is drawn *and* kept.
#
# **By hand.** a = 0.5, two proposals: 1 + 0.5 + 0.25 = 1.75 tokens. With c = 0.1 and w = 0.05 the
# round costs 1.3 passes, so S = 1.346. One proposal: 1.5 / 1.15 = 1.304; three: 1.875 / 1.45 =
# 1.293. The best is two. p = (0.5, 0.3, 0.2, 0), q = (0.2, 0.6, 0.1, 0.1): 0.6 is kept.
#
# **The usual errors.** The bonus token forgotten, so that all accepted proposals of g give g and
# not g + 1. The closed formula (1 - a^(g+1)) / (1 - a), which divides by 0 at a = 1. `range(most)`,
# which leaves out `most`.
# </details>

# %% tags=["demo"]
gammas = [1, 2, 4, 8, 16, 32, 50]
cases = ((0.9, 0.05), (0.8, 0.05), (0.8, 0.2), (0.6, 0.2))
ideal = {f"a = {a}, c = {c}": [speedup(a, g, c, 0.02) for g in gammas] for a, c in cases}
labels = ("proposals in a round", "times as fast as plain")
best = [best_gamma(a, c, 0.02, 64) for a, c in cases]
head = f"Best at {', '.join(map(str, best))} proposals, from the top"
style.show(*speculation.curves(gammas, {}, ideal, labels, head, 1.0))
few, many = (speedup(0.8, g, 0.05, 0.02) for g in (5, 50))
print(f"a = 0.8, c = 0.05: {few:.2f} at 5, {many:.2f} at 50; ", end="")
print(f"best at {best_gamma(0.8, 0.05, 0.02, 64)}")
said = "slower than with 5, faster than plain" if many > 1 else "slower than plain"
lab.reveal("slower", said)

# %% [markdown]
# <details><summary>The two sentences, and the best rule there is</summary>
#
# A draft that is very sure puts nearly all of q on one token. What both share is then hardly more
# than p of that token, so less is kept than with a draft that is as unsure as the target; and the
# residual is nearly p without the token, renormalised. (At temperature 0.25 it is so above.)
#
# Could a cleverer rule keep more? A token x comes out as a kept proposal at most as often as it is
# proposed, q(x), and at most as often as it may come out at all, p(x). So no exact rule keeps more
# of one token than the sum of min(p, q), and this one does. Over *several* proposals at once
# one can do better: block verification (Sun et al., 2025) judges them together, and is as exact.
# </details>
#
# ## 3. The loop
#
# Both models keep a cache. A round leaves things in them that did not become text, and they must
# go: **rollback**. Here a model is one function,
#
# `read(start, tokens) -> probabilities [len(tokens), V]`
#
# It forgets everything from position `start` on, then reads the tokens (a list of at least one),
# which stand at the positions start, start + 1, ... Row i is the distribution behind token i. It
# knows nothing but what it has read: if you forget to roll back, its answers are about another
# text. (`reader(model)` of `efflib.decoding.reader` makes one of a model.)
#
# ### Exercise 4 · The loop
#
# **45 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `speculate(target, draft, prompt, new, gamma, coin, pick) -> (tokens, passes)`.
#
# - `prompt` is a list of at least one token; `tokens` the list of exactly `new` more, distributed
#   as the target's own; `passes` how often the target was called. `new` and `gamma` are at least 1.
#   `target` and `draft` are two functions `read` as above, which have read nothing yet.
# - A round: `pick` proposals one by one from the draft's last row; *one* call of the target, which
#   reads what it lacks of the text, and the proposals; then your `verify`, with the draft's rows
#   from which the proposals were picked as q.
# - A round proposes gamma tokens, but never more than can still be used: a round always gives one
#   token of the target's own. The draft is not called to read its last proposal, and not at all in
#   a round that proposes nothing; there one `pick` from the target's row will do for `verify`.
# - Nothing is read twice: each call begins at the first position at which the model has not read
#   what now stands there. The newest token was read by neither model, whatever it is. (Behind a
#   round with everything accepted, the draft lacks *two* tokens.)
#   Each model reads the whole prompt in its first call, along with what else it lacks, however long
#   that is. No token ends the text, and no number of refusals ends the proposals.


# %% solution="ex4"
def speculate(
    target, draft, prompt: list[int], new: int, gamma: int, coin, pick
) -> tuple[list[int], int]:
    """(the next `new` tokens, calls of the target); target, draft: read(start, tokens) -> rows."""
    ### BEGIN SOLUTION
    text, end, passes = list(prompt), len(prompt) + new, 0
    read_by_target = read_by_draft = 0  # how much of the text each has in its cache
    while len(text) < end:
        guess, rows = list(text), []
        for _ in range(min(gamma, end - len(text) - 1)):
            rows.append(draft(read_by_draft, guess[read_by_draft:])[-1])
            read_by_draft = len(guess)
            guess.append(pick(rows[-1]))
        proposed = torch.tensor(guess[len(text) :], dtype=torch.int64)
        p = target(read_by_target, guess[read_by_target:])[-len(rows) - 1 :]
        passes += 1
        q = torch.stack(rows) if rows else p[:0]
        text += verify(proposed, q, p, coin, pick).tolist()
        read_by_target = len(text) - 1  # the newest token was read by neither
        read_by_draft = min(read_by_draft, len(text) - 1)
    return text[len(prompt) :], passes
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Keep the text, and for each model one number: how many tokens from the beginning of the
# text it has read and are still right. Every call starts there.
#
# **By hand.** Text 5 6, gamma 2. The draft reads 5 6 at 0 and proposes 7; it reads 7 at 2 and
# proposes 8. The target reads 5 6 7 8 at 0: rows 1, 2 and 3 are p. Say 7 is kept, 8 refused, 9
# picked. The text is 5 6 7 9. Target and draft both have 5 6 7 right, so the next calls start at 3
# and read 9. Had 8 been kept and 9 been the bonus, the target would start at 4; the draft never
# read 8, so it starts at 3 and reads 8 9.
#
# **The usual errors.** Rows off by one: with the prompt in the same call, p is the *last* g + 1
# rows. A rejected proposal that stays in a cache. More tokens than asked for.
# </details>
#
# **Reveal.** Your loop with the two models, and a **control**: a draft of the same shape whose
# weights are random. It proposes as eagerly and is never right. Greedily the text does not depend
# on the draft, so a round's passes follow from where draft and target agree: `rounds` counts them.
# Your loop runs five times to see whether that is so; then counting is enough, for ten texts.

# %% tags=["demo"]
# about 6 s: the target's ten greedy texts, and your loop on two of the prompts
prompts = [[zoo.BEGIN_ID, *tokenizer.encode(text).ids] for text in zoo.PROMPTS]
texts = [generate(target, torch.tensor([ids]), 40) for ids in prompts]  # [1, T + 40] each
torch.manual_seed(0)
drafts, agree, same = {"draft": draft, "random draft": Llama(draft.config).eval()}, {}, []
for name, model in drafts.items():  # [10, 40]: which of the target's own choices it guesses
    rows = [same_choice(target, model, text, text.shape[1] - 40) for text in texts]
    agree[name] = torch.cat(rows)
for name, g, i in [("draft", g, 1) for g in (1, 2, 4, 8)] + [("random draft", 4, 2)]:
    read = reader(target), reader(drafts[name])
    tokens, passes = speculate(*read, prompts[i], 40, g, coin, pick)
    counted = rounds(agree[name][i].tolist(), g)[0]
    same.append(tokens == texts[i][0, -40:].tolist())
    print(f"{name}, {g} proposals: {passes} passes, {counted} counted; text as plain: {same[-1]}")
lab.reveal("passes", rounds(agree["draft"][1].tolist(), 4)[0])

# %% tags=["demo"]
# tokens per pass on the ten texts; and the same agreements in 400 other orders
lengths, found["a"] = [1, 2, 4, 8], agree["draft"].float().mean().item()
per_pass = {name: [replay(row, g) for g in lengths] for name, row in agree.items()}
orders = [shuffled([agree["draft"]], g, 400) for g in lengths]
band = [(row[10], row[-11]) for row in orders]  # 380 of 400
inside = sum(low <= x <= high for x, (low, high) in zip(per_pass["draft"], band, strict=True))
head = f"{inside} of the draft's {len(lengths)} points lie where chance would put them"
formula = {f"formula at a = {found['a']:.2f}": [expected_tokens(found["a"], g) for g in lengths]}
bands = {"the draft's agreements, shuffled": band}
axes = ("proposals in a round", "tokens per pass of the target")
style.show(*speculation.curves(lengths, per_pass, formula, axes, head, 1.0, bands))
for g, row, by_formula in zip(lengths, band, *formula.values(), strict=True):
    print(f"{g} proposals: shuffled {row[0]:.2f} to {row[1]:.2f}, formula {by_formula:.2f}")

# %% [markdown]
# The formula is for an endless text of one rate. Here a text ends, and its last round is cut short;
# each text has a rate of its own; and acceptances may come in **runs**, since a line of an argument
# list is easy and the name of the next function is not. Which of them matters? The band is a
# **control**: the agreements of each text in 400 other orders, of which it shows the middle 95 %.
# Ends and rates stay, runs are gone. A point in the band says nothing about runs. Where the formula
# lies outside of the band, ends and rates do that; where it lies inside, they cannot be seen.
#
# ### May the draft look at what it drew?
#
# A draft that is unsure had better stop: a guess that will be refused costs a pass. It may go by
# its whole distribution, before or after a draw, or by the probability of the very token that it
# drew.

# %% tags=["demo"]
lab.predict(
    "stops",
    "A: stop behind a token if the largest q there is below 0.5. B: stop behind a drawn token "
    "whose own q is below 0.5. C: do not propose such a token, and end the round before it. Which "
    "keep the text distributed as p?",
    options=["only A", "A and B", "A, B and C", "none"],
)

# %% tags=["demo"]
# every way of a round of up to two proposals, for three pairs of models of three tokens
from efflib.lab.chances import stopped, table

rules = {  # (whether the drawn token is proposed, whether to go on behind it)
    "A": lambda row, token: (True, row.max() >= 0.5),
    "B": lambda row, token: (True, row[token] >= 0.5),
    "C": lambda row, token: (row[token] >= 0.5, True),
}
for name, rule in rules.items():
    found[name] = []
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        found[name].append(stopped(rule, table(rng, 3, 3), table(rng, 3, 3), 2, verify))
    print(f"{name}: off by up to", ", ".join(f"{off:.0e}" for off in found[name]))
exact = "".join(name for name in rules if max(found[name]) < 1e-9)
lab.reveal("stops", {"A": "only A", "AB": "A and B", "ABC": "A, B and C"}.get(exact, "none"))

# %% [markdown]
# <details><summary>Why</summary>
#
# The proof of exercise 2 is about one token: drawn from q, then judged. Whatever ends the round
# *behind* that comes too late to touch it, and what follows is the target's own bonus. So B is
# exact: the token is looked at, and still verified. C withholds tokens because of what they are:
# what is proposed is then no draw from q any more, and `verify` is given a q that is not true. To
# make C exact one would have to give it the q of what is really proposed.
# </details>
#
# ### On the clock
#
# Tokens per pass are no seconds. The costs are measured here, on your machine, *as the loop uses
# them*: g passes of the draft in a row, then one of the target over g + 1 tokens, each as the least
# of thirty rounds. Then both ways of decoding take turns, so that a busy machine is busy for both.
# Of five turns the middle one counts, and those beside it say how much of it is luck.


# %% tags=["demo"]
# about 4 s: by this thread's own clock, which stands while others run; behind 64 tokens
large, small, costs = reader(target), reader(draft), {}
for read in (large, small):
    read(0, [0] * 64)
one = min(spent(large, 64, 1) for _ in range(30))
for g in lengths:
    rows = [
        (sum(spent(small, 64 + i, 1) for i in range(g)), spent(large, 64, g + 1)) for _ in range(30)
    ]
    drafts_of, check = map(min, zip(*rows, strict=True))
    costs[g] = drafts_of / g / one, max(0.0, check / one - 1) / g
    print(f"{g} proposals: c = {costs[g][0]:.2f}, w = {costs[g][1]:.3f}")
found["c"], found["w"] = costs[4]
print(f"a plain pass of the target {1e3 * one:.2f} ms")

# %% tags=["demo"]
# about 8 s: your loop and plain decoding, in turns
turns, batch = {}, torch.tensor([prompts[1]])
for g in lengths:
    turns[g] = []
    for _ in range(5):
        start = time.perf_counter()
        generate(target, batch, 40)
        middle = time.perf_counter()
        speculate(reader(target), reader(draft), prompts[1], 40, g, coin, pick)
        turns[g].append((middle - start) / (time.perf_counter() - middle))
    _, low, half, high, _ = sorted(turns[g])
    print(f"{g} proposals: {half:.2f} times as fast ({low:.2f} to {high:.2f} beside it)")

# %% tags=["demo", "fold"]
c, w = found["c"], found["w"]
counts = [rounds(agree["draft"][1].tolist(), g) for g in lengths]  # the passes of this one text
found["best"] = best_gamma(found["a"], c, w, 64)
found["limit"] = speedup(found["a"], found["best"], c, w)
clock = [sorted(row) for row in turns.values()]
found["clock"] = "{2:.2f} ({1:.2f} to {3:.2f})".format(*max(clock, key=lambda row: row[2]))
lines = {
    "formula, ten texts": [speedup(found["a"], g, *costs[g]) for g in lengths],
    "passes of this text, counted": [
        40 / (passes + n * sum(costs[g])) for g, (passes, n) in zip(lengths, counts, strict=True)
    ],
}
most = max(lines["passes of this text, counted"])
head = f"At its best {found['clock']} times as fast; passes and their costs alone say {most:.2f}"
bands = {"the middle three of five turns": [(row[1], row[3]) for row in clock]}
measured = {"measured": [row[2] for row in clock]}
style.show(*speculation.curves(lengths, measured, lines, labels, head, 1.0, bands))
print(f"ten texts, c and w of four proposals: the formula is best at {found['best']}, ", end="")
print(f"with {found['limit']:.2f} times the speed")
need = next((a / 100 for a in range(101) if speedup(a / 100, 5, c, w) >= 2), None)
needed = "no a is enough" if need is None else f"a would have to be {need}"
print(f"for twice as fast at 5 proposals with this c and w, {needed}")

# %% [markdown]
# c at one proposal is the control for *how* one measures: there draft and target take turns, as
# with a naive stopwatch, and each finds its weights pushed out of the processor's caches by the
# other. In a longer round only the first pass of the draft does, so c may be smaller there: compare
# the lines. (On a busy machine the neighbours push weights out, too, and hide the difference.)
#
# Two rules of counting stand in this picture. The lines are the least of many passes, by a clock
# that stands while others run; the points are seconds on the wall, and hold what no line has: to
# verify, to draw, to roll back, and the Python of a round. So on a quiet machine points lie below
# the counted line; on a busy one both move, and only the band says by how much. If the band reaches
# from below 1 to above it, then no gain is visible, and that is a finding.
#
# The papers report 2 to 3 times (Leviathan et al., 2023; Chen et al., 2023, with 70 billion
# parameters: 2 to 2.5). There a pass of the target is nearly nothing but reading weights, so w is
# next to nothing, and c goes with the draft's share of the weights, as long as its own passes wait
# for memory as well; Chen et al. have 0.06 of the weights and c = 0.13 (1.8 of 14.1 ms). Not
# everywhere: in a mixture of experts more tokens wake more experts, and w grows.
#
# ### Temperature
#
# The rate of exercise 3, at every token of texts that the target samples behind two prompts.
# The draft is sampled at the same temperature.

# %% tags=["demo"]
# about 5 s: two texts of each prompt; at temperature 0 there is only one
found["rates"] = {}
for temperature in (0.0, 0.5, 1.0, 1.5, 5.0):
    sampling, rates = Sampling(temperature), []
    torch.manual_seed(1)
    for ids in prompts[1:3]:
        batch = torch.tensor([ids] * (2 if temperature else 1))
        for row in generate(target, batch, 40, sampling).tolist():
            rows = [reader(m, sampling)(0, row[:-1])[len(ids) - 1 :] for m in (target, draft)]
            rates.append(sum(map(acceptance_rate, *rows)) / 40)
    found["rates"][temperature] = sum(rates) / len(rates)
    each = ", ".join(f"{rate:.2f}" for rate in rates)
    print(f"temperature {temperature}: a = {found['rates'][temperature]:.2f} (texts: {each})")

# %% [markdown]
# **Then write one sentence:** at temperature 0 the rate of a token is 0 or 1 and nothing between.
# Why? And what must it become as the temperature grows without end? (Compare: below exercise 5.)
#
# *Your sentence:*
#
# ## 4. Guesses without a model, and several at once
#
# Text repeats itself: names, calls, whole lines. **Prompt lookup** takes the last few tokens, finds
# where they stood before, and proposes what followed. It has no model and costs next to nothing.

# %% tags=["demo"]
lab.predict(
    "lookup",
    "A lookup in the text so far instead of the draft model, on the target's ten greedy texts. "
    "Tokens per pass at up to 8 proposals?",
    unit="tokens",
)

# %% [markdown]
# ### Exercise 5 · Drafts from the text itself
#
# **25 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `lookup(text, gamma, longest) -> tokens` and `certain(proposed, vocab) -> q`.
#
# - `lookup`: take the last n tokens of the text, with n = `longest`. Find the *last* place before
#   where the same n tokens stood, with at least one token behind them. Return what followed, at
#   most gamma tokens; what follows may run into the last n tokens themselves. If there is no such
#   place, try n - 1, and so on down to 1. Nothing found: an empty list.
# - `text` is a list of at least one token, of any length and with any ids of 64 bits, also
#   negative ones; it may be shorter than `longest`, which is at least 1; gamma may be 0.
# - `certain`: such proposals were not drawn from a distribution, and `verify` asks for one. Decide
#   which q [g, V] makes it right, so that what comes out is still distributed as p.
#
# **Shapes** `proposed` int64 [g], perhaps empty; `q` float32 [g, vocab], here with some thousands
# of tokens at most, and not 130,000.


# %% solution="ex5"
def lookup(text: list[int], gamma: int, longest: int) -> list[int]:
    """Up to gamma tokens that followed the last n of the text, where they last stood before."""
    ### BEGIN SOLUTION
    for n in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + gamma]
    return []
    ### END SOLUTION


def certain(proposed: Tensor, vocab: int) -> Tensor:
    """What proposals [g] that nobody drew were drawn from: float32 [g, vocab]."""
    ### BEGIN SOLUTION
    return torch.nn.functional.one_hot(proposed, vocab).float()
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** `lookup` is two loops, one over n from long to short and one over places from right to
# left; the first hit counts. For `certain`: what was the probability of the token that was
# proposed?
#
# **By hand.** Text 7 1 2 3 1 2 4 1 2, longest 2, gamma 3. The last two, 1 2, stood before at 1 and
# at 4. The later counts: behind it stand 4 1 2. Text 6 6: the last token, 6, stood at 0, and behind
# it stands 6.
#
# **The usual errors.** The last n tokens find themselves. Searching from the left. Giving q the
# target's own row: then everything is accepted, and the text is no sample of p.
# </details>

# %% tags=["demo"]
# about 3 s: your lookup on the ten texts, and on texts that the model is asked to write once more
from efflib.decoding.replay import constants, replayed

# the whole text, and how it begins
again = [generate(target, torch.cat([t, t[:, 1:9]], dim=1), 40) for t in texts[:3]]
for name, rows in (("ten texts", texts), ("written once more", again)):
    counts = []
    for t in (text[0].tolist() for text in rows):
        counts.append(replayed(t, len(t) - 40, lambda done, room, t=t: lookup(t[:done], 8, 3)))
    passes, guesses = map(sum, zip(*counts, strict=True))
    found[name], cost = 40 * len(rows) / passes, passes + guesses * found["w"]
    found["lookup", name] = speed = 40 * len(rows) / cost
    agreed = [same_choice(target, draft, t, t.shape[1] - 40)[0].tolist() for t in rows]
    found["draft", name] = max(constants(agreed, found["c"] + found["w"]).values())
    print(f"{name}: lookup {found[name]:.2f} tokens a pass, {speed:.2f} times plain; ", end="")
    print(f"the draft model at its best length {found['draft', name]:.2f} times")
lab.reveal("lookup", found["ten texts"])

# %% [markdown]
# Two texts, two answers. New text has little to look up. Where a text is to be written once more
# (an edit, a quotation, a table that is reformatted) and the target does copy, lookup wins by far:
# no model, no pass, and a proposal costs w alone, while one of the model costs c + w.
#
# <details><summary>The sentence about temperature</summary>
#
# At temperature 0 both distributions have all of their mass on one token: either it is the same,
# and the sum of min(p, q) is 1, or another, and it is 0. As the temperature grows without end both
# become uniform, and the rate goes to 1, for whatever draft. In between it need not grow with
# either.
# </details>
#
# ### Trees
#
# The first wrong guess ends a round. So guess several tokens for the same place: a **tree**. Its
# nodes are read in one pass, if every node sees only its own path.
#
# Nodes are numbered so that parents come before their children; node 0 is the last token of the
# text. The mask and the positions make a pass over the tree as good as one over each path. Then the
# target walks: at a node it has p, and looks at the children in their order. Nobody drew them, so
# each is certain.
#
# ### Exercise 6 · A token tree
#
# **40 minutes · 15 points** · difficulty 5 of 5 ●●●●● · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `depths(parents) -> list`: how many steps each node is from node 0. Its position is that of node
#   0 plus its depth.
# - `tree_mask(parents, past) -> mask`: True where node i sees token j: all `past` tokens before
#   node 0, its ancestors, itself.
# - `walk(tokens, parents, p, coin, pick) -> (path, token)`. From node 0: the children of a node are
#   judged by `coin` in the order of their numbers. The first that is kept becomes the next node. If
#   none is (or there is none), `token` is picked, once, and the walk ends. `path` is node 0, and
#   then the nodes kept. The tokens must come out distributed as p, row i behind node i: derive with
#   which chance each child is kept, and what is left to pick from. Every child is judged, however
#   many there are, deep or unlikely; where its chance is 0 or 1 you may ask or not. Children of one
#   node are all different, and their numbers need not follow one another. Compute, and pick, in the
#   dtype of p or in float64, never in less.
# - A child that has all that is left, but for rounding, is as good as sure. If a coin refuses it
#   all the same, it is up to you what is picked from.
#
# **Shapes** `parents`: list, -1 for node 0; `mask` bool [N, past + N]; `tokens` list of N;
# `p` [N, V] float32 or float64; `path` list of ints, `token` int.


# %% solution="ex6"
def depths(parents: list[int]) -> list[int]:
    """Steps from node 0 to each node."""
    ### BEGIN SOLUTION
    found = [0]
    for parent in parents[1:]:
        found.append(found[parent] + 1)
    return found
    ### END SOLUTION


def tree_mask(parents: list[int], past: int) -> Tensor:
    """bool [N, past + N]: a node sees the text before node 0, its ancestors, itself."""
    ### BEGIN SOLUTION
    n = len(parents)
    mask = torch.cat([torch.ones(n, past), torch.eye(n)], dim=1).bool()
    for node, parent in enumerate(parents[1:], start=1):
        mask[node] |= mask[parent]
    return mask
    ### END SOLUTION


def walk(tokens: list[int], parents: list[int], p: Tensor, coin, pick) -> tuple[list[int], int]:
    """(nodes kept from node 0 on, the token behind the last one); p [N, V], row i behind node i."""
    ### BEGIN SOLUTION
    path, left = [0], p[0]
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        if coin(float(left[tokens[node]])):
            path.append(node)
            left = p[node]
        else:
            rest = left.index_fill(0, torch.tensor(tokens[node], device=p.device), 0)
            left = rest / rest.sum() if rest.sum() > 0 else left
    return path, pick(left)
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** One child is a proposal that was certain: exercise 5 gives the chance and the residual.
# The next child is judged by what is left then, as if that were p.
#
# **By hand.** p = (0.5, 0.3, 0.2), children 0 and 1. Child 0 is kept with 0.5. If not, left is
# (0, 0.6, 0.4), and child 1 is kept with 0.6: in all 0.5 · 0.6 = 0.3, as it should be. Else left is
# (0, 0, 1). Parents -1 0 0 1: depths 0 1 1 2; node 3 sees the text, 0, 1 and itself.
#
# **The usual errors.** Every child judged by p itself: child 1 comes in 0.5 · 0.3 of all cases. A
# node that sees its siblings. Children of a node that was refused.
# </details>

# %% tags=["demo"]
# your mask and depths in the live model: a tree of the draft's choices, and each of its paths alone
parents, words, past = [-1, 0, 0, 1, 1, 2, 2], [prompts[1][-1]], len(prompts[1]) - 1
text = prompts[1][:past]
with torch.no_grad():
    for parent in (0, 1, 2):  # two children each, the likeliest behind their path
        path = [words[0]] if parent == 0 else [words[0], words[parent]]
        words += draft(torch.tensor([text + path]))[0, -1].topk(2).indices.tolist()
    places = torch.tensor([*range(past), *(past + depth for depth in depths(parents))])
    mask = torch.cat([torch.ones(past, past + 7).tril().bool(), tree_mask(parents, past)])
    rows = target(torch.tensor([text + words]), positions=places, mask=mask)[0, past:]
    alone = target(torch.tensor([[*text, words[0], words[2], words[6]]]))[0, -1]
    plain = target(torch.tensor([text + words]))[0, -1]  # CONTROL: as if the tree were a text
off = [f"{float((row - alone).abs().max()):.0e}" for row in (rows[6], plain)]
print(f"logits of node 6 against its path alone: off by {off[0]}; with a plain mask by {off[1]}")
print("the walk:", walk(words, parents, filtered_probabilities(rows, GREEDY), coin, pick))

# %% tags=["demo"]
# chains and trees on the ten texts, by the passes of the draft that they take; other c and w, too
from math import prod

from efflib.decoding.replay import ranks, tree_rounds

places = [ranks(draft, text, text.shape[1] - 40) for text in texts]
cases = {"here": (found["c"], found["w"]), "large": (0.1, 0.02), "larger": (0.05, 0.005)}
print(
    f"times plain at c, w = {', '.join(f'{c:.2f}, {w:.3f} ({n})' for n, (c, w) in cases.items())}"
)
for widths in ((1,), (10,), (1, 1), (3, 2), (1, 1, 1), (2, 2, 1), (1,) * 10):
    deep, nodes = len(widths), sum(prod(widths[: i + 1]) for i in range(len(widths)))
    rate = found[widths] = 400 / sum(tree_rounds(row, widths) for row in places)
    speeds = {name: rate / (1 + deep * c + nodes * w) for name, (c, w) in cases.items()}
    found[widths, "speed"] = speeds
    said = ", ".join(f"{speed:.2f}" for speed in speeds.values())
    print(f"{deep:2d} passes, {nodes:2d} nodes {widths}: {rate:.2f} tokens a pass; {said}")

# %% [markdown]
# (A level of a tree is charged as one pass of the draft, though that pass reads several nodes: this
# favours the trees.)
#
# **Then write one sentence:** a tree and a chain with as many passes of the draft pay the same c.
# What does the tree win in tokens, what do its other nodes cost, and how small must w be for the
# tree of three passes to be ahead? (Compare: below the open task.)
#
# *Your sentence:*
#
# ## 5. Misconceptions
#
# **"It computes less."** It computes more: g + 1 tokens for the few that stay, and the draft on
# top. It is faster because a pass for one token leaves the arithmetic idle. In a batch many rows
# share one reading of the weights: the idle time goes, w grows, and short texts are often slower
# with speculation. Long ones need not be: there a pass reads mostly keys and values, which no two
# rows share, at any batch size (MagicDec, 2024).
#
# **"The draft must write well."** It must agree with the target. A well-written other text is worth
# nothing.
#
# **"Almost lossless."** The rule is exact. What is not exact: rounding (a pass over g + 1 tokens
# sums in another order, so equal logits may turn over), and rules that are *meant* to be lossy,
# such as Medusa's typical acceptance.
#
# **"One needs a second model."** Most engines use none today: a small head on the target's own
# hidden states guesses (EAGLE, 2024, and its successors; the heads for several tokens that some
# models are trained with), so c is that of one layer. Verification is the one that you wrote.
#
# ### Open task (not graded)
#
# **Faster than any fixed length.** The number to beat is printed below: ten texts at the best
# constant gamma, each pass and each proposal at your c and w. `my_length` says how many of the
# draft's guesses to propose in this round. It may look at their probabilities and at how many were
# proposed and kept in the rounds before; you know by now which looks are exact. It starts as the
# rule of transformers: two more after a round in which all was kept, one less after others.

# %% tags=["demo"]
# about 6 s: what the draft would write at each place of the ten texts; what each constant gives
from efflib.decoding.replay import adaptive, drafted

guesses = [drafted(draft, text, text.shape[1] - 40, 6) for text in texts]
each = found["c"] + found["w"]  # what a proposal costs
speeds = constants(agree["draft"].tolist(), each)
for g, speed in speeds.items():
    print(f"{g} proposals in each round: {speed:.3f} times plain")
found["constant"] = max(speeds.values())
print(f"to beat: {found['constant']:.3f}")


# %% tags=["demo"]
def my_length(chances: list[float], history: list[tuple[int, int]]) -> int:
    """Yours. chances: q of up to 6 guesses; history: (proposed, kept) of the rounds before."""
    length = 4
    for proposed, kept in history:
        length = length + 2 if kept == proposed else length - 1
        length = max(1, min(length, 6))
    return length


counts = []
for text, run in zip(texts, guesses, strict=True):
    counts.append(adaptive(text[0].tolist(), text.shape[1] - 40, run, my_length))
passes, proposed = map(sum, zip(*counts, strict=True))
found["yours"] = 400 / (passes + proposed * each)
print(f"yours: {found['yours']:.3f} times plain; to beat: {found['constant']:.3f}")

# %% [markdown]
# <details><summary>The sentence about trees</summary>
#
# A tree of three passes (2, 2, 1) and a chain of three differ in seven nodes: where the tree makes
# T and the chain C tokens a pass, it is ahead if T / (1 + 3c + 10w) > C / (1 + 3c + 3w), that is,
# if w (10 C - 3 T) < (T - C)(1 + 3c). With T = 1.05 C and c = 0.2 the bound on w is about 0.012.
# </details>
#
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** How can the text be what the target alone would have
# written, although another model guessed most of it? And how much time is there to win, on your
# machine and on a large model?
# *Rubric:* the sum of both ways to a token, with the residual (2); your tokens a pass (1); your
# clock, and whether it shows a gain at all (1); which cost decides, here and there (1).

# %% [markdown] written="w1"
# A token x comes out in two ways: proposed and kept, which has probability min(p(x), q(x)), or
# after a rejection. Rejections have just the probability that is missing, and draw from the missing
# part, max(0, p - q) divided by its sum. Together that is p(x), whatever q is; the draft decides
# only how often the first way is taken. With 4 proposals my loop made more than three tokens a
# pass, a random draft one. On the clock little was left of that: 12 % with two, 11 % with four (2
# to 33 % in the turns beside it), and eight were slower, by more than the turns differ: a pass of
# my draft costs a third of one of the target and a checked token a tenth, so a round of four costs
# three passes. On a large model c is about a tenth and checking is nearly free: there most of the
# tokens a pass would be won, two to three times the speed.

# %% [markdown]
# **Question 2.** A colleague proposes to accept x whenever p(x) > 0.1, "the target finds it likely,
# after all", and to draw from p otherwise. What comes out, for p = (0.5, 0.3, 0.2) and a draft that
# always says token 2? And what would you say to "take gamma = 50, then a round gives 51 tokens"?
# *Rubric:* why token 2 is always kept (1), and the distribution that comes out (1); that the draft
# then decides what is written (1); the limit of tokens a round and the cost that goes on growing
# (2).

# %% [markdown] written="w2"
# Token 2 is proposed every time and has p = 0.2 > 0.1, so it is always accepted: out comes (0, 0,
# 1) instead of (0.5, 0.3, 0.2). The draft writes the text, and the target only forbids what it
# finds very unlikely. With the exact rule token 2 is kept in 0.2 of all cases and otherwise 0 and 1
# come in the proportion 5 to 3. A round gives 1 + a + a^2 + ... tokens: with a = 0.8 that is never
# more than 5, however many are proposed, while each proposal costs c + w. At gamma = 50, c = 0.05
# and w = 0.02 a round costs 4.5 passes for 5 tokens; at gamma = 5 it costs 1.35 for 3.7.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Make C exact.** Which q would `verify` have to be given for the rule C of section 3? Write it,
#   and let `stopped` say whether it is right.
# - **Better than one by one.** A round that is judged as a whole can keep more (Sun et al., 2025).
#   Find two models of two tokens and gamma 2 where your `verify` keeps less in the mean than the
#   sum over all pairs of min(p(pair), q(pair)) would allow.
# - **Two bars of one height.** Find p and q for which speculation never accepts, though both give
#   probability to half of the tokens.
#
# **Next:** lab 15 distils a draft; lab 18 puts the loop into an engine.
#
# **Sources.** Leviathan et al., *Fast Inference from Transformers via Speculative Decoding*, 2023
# (arXiv:2211.17192). Chen et al., *Accelerating Large Language Model Decoding with Speculative
# Sampling*, 2023 (arXiv:2302.01318). Miao et al., *SpecInfer*, 2023 (arXiv:2305.09781). Cai et al.,
# *Medusa*, 2024 (arXiv:2401.10774). Li et al., *EAGLE*, 2024 (arXiv:2401.15077), and *EAGLE-3*,
# 2025 (arXiv:2503.01840). Saxena, *Prompt Lookup Decoding*, 2023. *MagicDec*, 2024
# (arXiv:2408.11049). Sun et al., *Block Verification Accelerates Speculative Decoding*, 2025
# (arXiv:2403.10444).
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo", "fold"]
lab.report()
f, chain, tree = found, (1, 1, 1), (2, 2, 1)
four, random = (per_pass[name][2] for name in ("draft", "random draft"))
new, once = "ten texts", "written once more"
speeds = {
    widths: ", ".join(f"{s:.2f}" for s in f[widths, "speed"].values()) for widths in (chain, tree)
}
takeaways = [
    f"The draft guesses {100 * f['a']:.0f} % of the target's greedy choices.",
    f"Four proposals: {four:.2f} tokens a pass; with a random draft {random:.2f}.",
    f"Withheld guesses spoil a text by {max(f['C']):.0e}, looked-at ones by {max(f['B']):.0e}.",
    f"c = {f['c']:.2f}, w = {f['w']:.3f}: at most {f['limit']:.2f} times as fast, at {f['best']}.",
    f"On the clock, at its best: {f['clock']}.",
    f"Rates by temperature: {', '.join(f'{t}: {a:.2f}' for t, a in f['rates'].items())}.",
    f"New text: lookup {f['lookup', new]:.2f}, the model {f['draft', new]:.2f} times plain.",
    f"Written once more: lookup {f['lookup', once]:.2f}, the model {f['draft', once]:.2f}.",
    f"Three passes, by c and w: a chain {speeds[chain]}; a tree {speeds[tree]} times plain.",
    f"Open task: {f['yours']:.3f} times plain, the best constant {f['constant']:.3f}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
