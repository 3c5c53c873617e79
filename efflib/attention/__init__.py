"""Attention: what a query may look at, and what that costs.

Modules are loaded when they are named: `from efflib.attention.streaming import StreamingCache`.

    paged       keys in blocks, one after the other, with an online softmax
    heads       fewer key and value heads (GQA, MQA) by pooling, and more by repeating
    maps        attention maps of a model, and the share that one token takes
    streaming   caches of bounded size: window, attention sinks, recomputation
    readers     the ways to read a text without end behind one interface, and what they cost
    paged_streaming  sinks and a window in blocks, of which the first stays
    zero_sink   a softmax that may attend to nothing
    sink_bias   the same with a learned number in place of the zero

Notation: B batch, H query heads, Hkv key heads, T new tokens, S keys attended to, d head size.
"""
