"""Serving: what a model and a step of generation cost, what bounds them, and where the cache lies.

Modules are loaded when they are named, e.g. `from efflib.serving.roofline import decode_step`.

    decoder     the shapes of a model, from a table or a config.json
    memory      bytes of parameters, cache, activations and optimizer, and how many sequences fit
    roofline    the bytes and FLOPs of prefill and decoding, and the least time they need
    limits      intensity, ridge, attainable speed; batch and context where limits change places
    metrics     TTFT, TPOT, ITL, percentiles, throughput and goodput of a server's log
    energy      joules of a sentence, by formula
    blocks      free blocks in a queue, and owners of the others, counted
    paged       block tables: append, fork, copy on write, free, swap
    prefix      full blocks found again by their hashes
    contiguous  the baselines: one piece of memory for each request
    waste       the bookkeeping of a server (`efflib.traffic.server`) with all of this
    schedulers  which tokens the next step computes, as functions of plain values
    load        tails, goodput and its knee, Little's law
    radix       a cache of texts as a radix tree: cut, hold, evict leaves
    pools       prefill and decoding apart, and the link between them
"""
