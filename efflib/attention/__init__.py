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
    eviction    few tokens kept, by a rule: a window, sinks, H2O, TOVA, random
    oracle      rules that know later queries, and what no rule can beat
    selection   few pages read of all that is kept, chosen by a bound
    spatten     a cascade of tokens and heads, and high bits first

Notation: B batch, H query heads, Hkv key heads, T new tokens, S keys attended to, d head size.
"""
