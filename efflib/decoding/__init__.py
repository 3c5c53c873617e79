"""Decoding: from a model's logits to text, one token or several per pass.

Modules are loaded when they are named, e.g. `from efflib.decoding.sampling import generate`.

    sampling      greedy, temperature, top-k, top-p; generation with a cache, whole or streamed
    beam          beam search with a length penalty
    speculative   a small model proposes, the large one verifies: fewer passes, the same output
    drafts        what proposes: a model, a lookup in the text; how many tokens at a time
    tree          several continuations checked in one pass, and the path that is kept
    medusa        heads on the target that propose at once; typical acceptance, which is lossy
    speed         how much faster it is, from acceptance and costs; the best draft length

Notation: B batch, T tokens, V vocabulary; p the target's distribution, q the draft's, g (gamma)
the tokens proposed per round.
"""
