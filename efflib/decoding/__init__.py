"""Decoding: from a model's logits to text, one token or several per pass.

Modules are loaded when they are named, e.g. `from efflib.decoding.sampling import generate`.

    sampling      greedy, temperature, top-k, top-p; generation with a cache, whole or streamed
    beam          beam search with a length penalty
    speculative   a small model proposes, the large one verifies: fewer passes, the same output

Notation: B batch, T tokens, V vocabulary; p the target's distribution, q the draft's, g (gamma)
the tokens proposed per round.
"""
