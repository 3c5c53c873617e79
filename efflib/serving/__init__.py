"""Serving: what a step of generation costs, what bounds it, and where its cache lies.

Modules are loaded when they are named, e.g. `from efflib.serving.roofline import decode_step`.

    roofline    the bytes and FLOPs of a decoding step, and the least time it needs
    blocks      free blocks in a queue, and owners of the others, counted
    paged       block tables: append, fork, copy on write, free, swap
    prefix      full blocks found again by their hashes
    contiguous  the baselines: one piece of memory for each request
    traces      requests from stated distributions, or from a file
    waste       where the memory goes, step by step, on a trace
"""
