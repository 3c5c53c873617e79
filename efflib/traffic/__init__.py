"""Traffic: requests that arrive, and servers that keep their memory with somebody else's functions.

Modules are loaded when they are named, e.g. `from efflib.traffic.traces import draw_trace`.  What
builds blocks, tables and prefixes is in `efflib.serving`; nothing of it is needed here.

    traces          requests from stated distributions, or from a file
    server          a trace served step by step, and where the memory was meanwhile
    conversations   prompts one after the other, whose beginnings may be found again
    one_card        the log of a server whose passes take as long as somebody says
    arrivals        requests in seconds: at random, in bursts, evenly, or from a file
    simulate        a server in steps under anybody's scheduler, its clock by the roofline
    gates           static and dynamic batches: who of the line the scheduler gets to see
    dropping        conversations that lose leading tokens or tails, and what that costs
    trials          experiments with schedulers, for lab 14
    joined          an engine out of parts that somebody else wrote, for lab 18
"""
