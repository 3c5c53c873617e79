"""Traffic: requests that arrive, and servers that keep their memory with somebody else's functions.

Modules are loaded when they are named, e.g. `from efflib.traffic.traces import draw_trace`.  What
builds blocks, tables and prefixes is in `efflib.serving`; nothing of it is needed here.

    traces          requests from stated distributions, or from a file
    server          a trace served step by step, and where the memory was meanwhile
    conversations   prompts one after the other, whose beginnings may be found again
    one_card        the log of a server whose passes take as long as somebody says
"""
