"""Attention: what a query may look at, and what that costs.

Modules are loaded when they are named: `from efflib.attention.streaming import StreamingCache`.

    paged       keys in blocks, one after the other, with an online softmax
    heads       fewer key and value heads (GQA, MQA) by pooling, and more by repeating
    streaming   caches of bounded size: window, attention sinks, recomputation
    zero_sink   a softmax that may attend to nothing
    backcopy    a small task on which an attention sink grows within a minute of training

Notation: B batch, H query heads, Hkv key heads, T new tokens, S keys attended to, d head size.
"""
