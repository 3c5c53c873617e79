"""One model on several devices: every device holds a part and sends what the others need.

Modules are loaded when they are named, e.g. `from efflib.parallel.together import run_together`.

    communicator  what a rank can ask of the others, and shares of n things
    together      all ranks in one process, one at a time: counts calls and names a deadlock
    distributed   the same calls over torch.distributed (gloo, nccl)
    processes     real processes on this machine; `sources` and `worker` are its parts
    tensor        column and row parallel linears with one all-reduce, sequence parallel
    heads         attention with the heads in parts, also over more devices than key heads
    vocabulary    embedding, cross-entropy and next token of a vocabulary in parts
    ring          an all-reduce made of send and recv, and what each call sends
    schedules     GPipe and 1F1B: orders, times, idle shares, live activations
    plans         the alpha-beta model: tensor or pipeline
    experts       a mixture's experts in parts, by two all-to-alls
    llama         a Llama in parts that loads one checkpoint
"""
