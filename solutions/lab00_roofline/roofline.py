# %% [markdown]
# # Lab 0: The roofline
#
# (opening: follows)

# %% [markdown]
# ## Card

# %%
import math

from torch import Tensor

from efflib.lab import Lab

lab = Lab("lab00_roofline")

# %% [markdown]
# ### Exercise 1 · Perplexity


# %% solution="ex1"
def perplexity(losses: list[Tensor], base: float = math.e) -> float:
    """base ** (mean loss of all tokens of all texts), computed in float64.

    losses: one tensor [tokens] for each text, -log_base of each token's probability, base > 1.
    Raises ValueError for base <= 1, and where there is no token at all.
    """
    ### BEGIN SOLUTION
    tokens = sum(x.numel() for x in losses)
    if base <= 1 or tokens == 0:
        raise ValueError(f"base {base} must be above 1, and there are {tokens} tokens")
    return base ** (sum(x.double().sum().item() for x in losses) / tokens)
    ### END SOLUTION


def bits_per_byte(losses: list[Tensor], text_bytes: int, base: float = math.e) -> float:
    """Bits that all tokens cost together, for each of the texts' bytes. losses as above.

    Raises ValueError for base <= 1 or text_bytes < 1.
    """
    ### BEGIN SOLUTION
    if base <= 1 or text_bytes < 1:
        raise ValueError(f"base {base} must be above 1, text_bytes {text_bytes} at least 1")
    return sum(x.double().sum().item() for x in losses) * math.log2(base) / text_bytes
    ### END SOLUTION


def strided_windows(tokens: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """(start, end, first) of each pass: it reads tokens [start, end) and scores [first, end).

    The first pass reads up to `window` tokens; each further one scores the next `stride` tokens
    (the last one what is left), and in front of them reads as many as the window has room for.
    Raises ValueError for tokens < 0, and unless 1 <= stride < window.
    """
    ### BEGIN SOLUTION
    if tokens < 0 or not 1 <= stride < window:
        raise ValueError(f"tokens {tokens}, window {window}, stride {stride}")
    passes, first = [], 1
    while first < tokens:
        end = min(tokens, window if first == 1 else first + stride)
        passes.append((max(0, end - window), end, first))
        first = end
    return passes
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# ### Exercise 2 · FLOPs and bytes of a step


# %% solution="ex2"
def layer_weights(config: dict) -> int:
    """Weights of the matrices of one layer (q, k, v, o and the MLP's): products for each token.

    config: Hugging Face's names; gated_mlp (True unless it says False) is ours.
    """
    ### BEGIN SOLUTION
    width, heads = config["hidden_size"], config["num_attention_heads"]
    d = config.get("head_dim") or width // heads
    kv_heads = config.get("num_key_value_heads") or heads
    matrices = 2 if config.get("gated_mlp") is False else 3
    return width * (2 * heads * d + 2 * kv_heads * d + matrices * config["intermediate_size"])
    ### END SOLUTION


def pairs(new: int, cached: int = 0) -> int:
    """Pairs of a query and a key that causal attention computes: each new token sees all cached
    ones, the new ones before it, and itself.  Raises ValueError for new < 1 or cached < 0.
    """
    ### BEGIN SOLUTION
    if new < 1 or cached < 0:
        raise ValueError(f"new {new} must be at least 1, cached {cached} at least 0")
    return new * cached + new * (new + 1) // 2
    ### END SOLUTION


def step_flops(config: dict, new: int, cached: int = 0, batch: int = 1) -> int:
    """FLOPs of one pass over `new` tokens in each of `batch` sequences, 2 for each product.

    All new tokens go through the layers, the last one of each sequence through lm_head.
    Raises ValueError for new or batch < 1, or cached < 0.
    """
    ### BEGIN SOLUTION
    if batch < 1:
        raise ValueError(f"batch {batch} must be at least 1")
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    width = heads * (config.get("head_dim") or config["hidden_size"] // heads)
    matrices = new * layers * layer_weights(config) + config["vocab_size"] * config["hidden_size"]
    attention = 2 * layers * width * pairs(new, cached)  # q k, and weights times v
    return 2 * batch * (matrices + attention)
    ### END SOLUTION


def step_bytes(
    config: dict,
    new: int,
    cached: int = 0,
    batch: int = 1,
    bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """Bytes that this pass moves: the layers' matrices and lm_head once, keys and values of the
    cached tokens read and of the new ones written.

    bits of a weight, kv_bits of a key or value.  Raises ValueError as step_flops, and for bits or
    kv_bits <= 0.
    """
    ### BEGIN SOLUTION
    if min(new, batch) < 1 or cached < 0 or min(bits, kv_bits) <= 0:
        raise ValueError(f"new {new}, cached {cached}, batch {batch}, bits {bits}, {kv_bits}")
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    d = config.get("head_dim") or config["hidden_size"] // heads
    values = 2 * layers * (config.get("num_key_value_heads") or heads) * d  # of a token
    weights = layers * layer_weights(config) + config["vocab_size"] * config["hidden_size"]
    return weights * bits / 8 + batch * (cached + new) * values * kv_bits / 8
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# ### Exercise 3 · The roofline


# %% solution="ex3"
def intensity(flops: float, moved: float) -> float:
    """FLOPs for each byte moved; without bytes inf, or 0.0 if there are no FLOPs either.

    Raises ValueError for negative ones.
    """
    ### BEGIN SOLUTION
    if flops < 0 or moved < 0:
        raise ValueError(f"flops {flops} and moved {moved} must not be negative")
    if moved == 0:
        return math.inf if flops else 0.0
    return flops / moved
    ### END SOLUTION


def ridge(peak: float, bandwidth: float) -> float:
    """FLOPs a byte from which on a machine computes at its peak (FLOP/s, bytes/s).

    Raises ValueError unless both are above 0.
    """
    ### BEGIN SOLUTION
    if peak <= 0 or bandwidth <= 0:
        raise ValueError(f"peak {peak} and bandwidth {bandwidth} must be above 0")
    return peak / bandwidth
    ### END SOLUTION


def attainable(flops_per_byte: float, peak: float, bandwidth: float) -> float:
    """FLOP/s at most, at this intensity (0 to inf).  Raises ValueError as ridge, or if negative."""
    ### BEGIN SOLUTION
    if flops_per_byte < 0:
        raise ValueError(f"an intensity of {flops_per_byte}")
    return peak if flops_per_byte >= ridge(peak, bandwidth) else flops_per_byte * bandwidth
    ### END SOLUTION


def seconds(flops: float, moved: float, peak: float, bandwidth: float) -> float:
    """Seconds at least, if computing and moving bytes overlap.  Raises ValueError as above."""
    ### BEGIN SOLUTION
    if flops < 0 or moved < 0 or peak <= 0 or bandwidth <= 0:
        raise ValueError(f"flops {flops}, moved {moved}, peak {peak}, bandwidth {bandwidth}")
    return max(flops / peak, moved / bandwidth)
    ### END SOLUTION


def limit(flops: float, moved: float, peak: float, bandwidth: float) -> str:
    """ "memory" where moving bytes takes longer than computing, else "compute"."""
    ### BEGIN SOLUTION
    return "memory" if seconds(flops, moved, peak, bandwidth) > flops / peak else "compute"
    ### END SOLUTION


def in_turn(parts: list[tuple[float, float]], peak: float, bandwidth: float) -> float:
    """Seconds at least for parts (flops, moved) that come one after the other; 0.0 for none."""
    ### BEGIN SOLUTION
    ridge(peak, bandwidth)  # refuses what is no machine, also where there are no parts
    return float(sum(seconds(flops, moved, peak, bandwidth) for flops, moved in parts))
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# ### Exercise 4 · Metrics from a server's log


# %% solution="ex4"
def timings(request: dict) -> dict:
    """{"ttft", "tpot", "latency"} of one request in seconds, None for what it does not have.

    request: {"arrival": seconds, "times": [seconds at which each token came], "finished": bool}
    Raises ValueError for a first token that is not later than the arrival, or a token earlier than
    the one before it.
    """
    ### BEGIN SOLUTION
    arrival, times = request["arrival"], request["times"]
    if times and times[0] <= arrival or any(b < a for a, b in zip(times, times[1:], strict=False)):
        raise ValueError(f"arrival {arrival}, times {times}")
    steps = len(times) - 1
    return {
        "ttft": times[0] - arrival if times else None,
        "tpot": (times[-1] - times[0]) / steps if steps > 0 else None,
        "latency": times[-1] - arrival if times and request["finished"] else None,
    }
    ### END SOLUTION


def percentile(values: list[float], q: float) -> float:
    """The value at place q / 100 (n - 1) of the n sorted ones (from 0), linear between two.

    Raises ValueError without values, and unless 0 <= q <= 100.
    """
    ### BEGIN SOLUTION
    if not values or not 0 <= q <= 100:
        raise ValueError(f"percentile {q} of {len(values)} values")
    place = q / 100 * (len(values) - 1)
    below, rows = int(place), sorted(values)
    above = min(below + 1, len(rows) - 1)
    return rows[below] + (place - below) * (rows[above] - rows[below])
    ### END SOLUTION


def summarize(log: list[dict], ttft_limit: float, tpot_limit: float) -> dict:
    """What the requests of a log took, in seconds, and what the server did per second.

    "ttft", "tpot": means over requests (that have one).  "itl", "itl_p99": mean and 99th percentile
    over the gaps between neighbouring tokens of all requests.  "throughput": tokens per second,
    from the first arrival to the last token.  "goodput": per second of the same time, finished
    requests with TTFT <= ttft_limit and TPOT <= tpot_limit (one token meets any TPOT limit).
    None where there is nothing to take a mean of; both rates are 0.0 without a token.
    Raises ValueError as timings.
    """
    ### BEGIN SOLUTION
    rows = [(r, timings(r)) for r in log]
    gaps = [b - a for r in log for a, b in zip(r["times"], r["times"][1:], strict=False)]
    ttfts, tpots = ([t[name] for _, t in rows if t[name] is not None] for name in ("ttft", "tpot"))
    good = [
        t["latency"] is not None and t["ttft"] <= ttft_limit and (t["tpot"] or 0) <= tpot_limit
        for _, t in rows
    ]
    tokens = [time for r in log for time in r["times"]]
    span = max(tokens) - min(r["arrival"] for r in log) if tokens else math.inf
    return {
        "ttft": sum(ttfts) / len(ttfts) if ttfts else None,
        "tpot": sum(tpots) / len(tpots) if tpots else None,
        "itl": sum(gaps) / len(gaps) if gaps else None,
        "itl_p99": percentile(gaps, 99) if gaps else None,
        "throughput": len(tokens) / span,
        "goodput": sum(good) / span,
    }
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# ### Exercise 5 · When decoding stops being bound by memory


# %% solution="ex5"
def ridge_batch(
    config: dict,
    context: int,
    peak: float,
    bandwidth: float,
    bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """The batch, a real number, at which a step that makes one token for each sequence takes as
    long to compute as to move its bytes; inf if moving takes longer for every batch.

    context: cached tokens of each sequence.  Raises ValueError for context < 0, and as step_bytes
    and ridge.
    """
    ### BEGIN SOLUTION
    flops = step_flops(config, 1, context)  # of one more sequence
    two = step_bytes(config, 1, context, 2, bits, kv_bits)
    one = step_bytes(config, 1, context, 1, bits, kv_bits)
    each = two - one  # bytes of one more sequence
    lead = flops / ridge(peak, bandwidth) - each  # in bytes
    return (one - each) / lead if lead > 0 else math.inf
    ### END SOLUTION


def ridge_context(config: dict, peak: float, bandwidth: float, kv_bits: float = 16) -> float:
    """The context, a real number, from which on no batch is bound by computing; inf if there is
    none, 0.0 if none is at context 0.

    Raises ValueError as ridge, and for kv_bits <= 0.
    """
    ### BEGIN SOLUTION
    least, more = step_flops(config, 1, 0), step_flops(config, 1, 1)
    fixed = 2 * least - more  # FLOPs of a sequence that do not grow with what it sees
    each = step_bytes(config, 1, 1, 1, 1, kv_bits) - step_bytes(config, 1, 0, 1, 1, kv_bits)
    lead = each * ridge(peak, bandwidth) - (more - least)  # of a token that is seen, in FLOPs
    return max(0.0, fixed / lead - 1) if lead > 0 else math.inf
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# ### Exercise 6 · Parameters, tokens and joules


# %% solution="ex6"
def parameters(config: dict) -> int:
    """Parameters of a model without biases: the token table, lm_head unless it is the same table
    (tie_word_embeddings), the layers' matrices, two norms a layer and one at the end.
    """
    ### BEGIN SOLUTION
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    tables = 1 if config.get("tie_word_embeddings") else 2
    norms = (2 * layers + 1) * width
    return tables * config["vocab_size"] * width + layers * layer_weights(config) + norms
    ### END SOLUTION


def chinchilla(compute: float, ratio: float = 20.0) -> tuple[float, float]:
    """(parameters N, tokens D) that spend `compute` FLOPs of training, C = 6 N D, at D = ratio N.

    Raises ValueError unless both are above 0.
    """
    ### BEGIN SOLUTION
    if compute <= 0 or ratio <= 0:
        raise ValueError(f"compute {compute} and ratio {ratio} must be above 0")
    n = math.sqrt(compute / (6 * ratio))
    return n, ratio * n
    ### END SOLUTION


def sentence_joules(
    config: dict,
    prompt: int,
    new: int,
    machine: dict,
    batch: int = 1,
    bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """Joules for each of `batch` sentences of `new` tokens behind a prompt of `prompt` tokens.

    The pass over the prompt gives the first token, each further pass reads the token before.
    machine: {"peak", "bandwidth", "joules_per_flop", "joules_per_byte", "idle_watts"}; a pass takes
    joules_per_flop flops + joules_per_byte bytes + idle_watts seconds, by exercises 2 and 3.
    Raises ValueError for prompt or new < 1, and as step_bytes and seconds.
    """
    ### BEGIN SOLUTION
    if prompt < 1 or new < 1:
        raise ValueError(f"prompt {prompt} and new {new} must be at least 1")
    passes = [(prompt, 0), *((1, cached) for cached in range(prompt, prompt + new - 1))]
    total = 0.0
    for tokens, cached in passes:
        flops = step_flops(config, tokens, cached, batch)
        moved = step_bytes(config, tokens, cached, batch, bits, kv_bits)
        total += machine["joules_per_flop"] * flops + machine["joules_per_byte"] * moved
        took = seconds(flops, moved, machine["peak"], machine["bandwidth"])
        total += machine["idle_watts"] * took
    return total / batch
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")
