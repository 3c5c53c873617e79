"""The engine: many requests at once, in one pass of the model a step.  The parts, each on its own:

    requests    what is asked for, what is known of it, and what a step tells about it
    blocks      keys and values of all requests, in blocks: grow, roll back, find a beginning again
    passes      pieces of prompts and answers of several requests through the model in one pass
    policies    which tokens the next step computes (`efflib.serving.schedulers`)
    choosing    the tokens that a pass yields: greedy, drawn, and proposals verified
    proposals   tokens that may come next: out of the text itself, or from a small model
    weights     the same model with its linears in 4 or 8 bits
    engine      the loop over all of these
    switches    an engine with every technique on or off
    bills       what steps moved and computed, and how long a GPU would take

    server      an OpenAI-compatible endpoint:  python -m efflib.engine target
    words       text out of tokens, and where it has to stop
    protocol    what a request has to look like, and errors as OpenAI has them
    worker      the thread in which the engine runs, and the streams that it feeds

Modules are loaded when they are named, e.g. `from efflib.engine.engine import Engine`.
"""
