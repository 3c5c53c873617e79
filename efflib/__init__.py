"""efflib: techniques of efficient language-model inference and fine-tuning, to be read.

One technique, one module; importing ``efflib`` loads none of them.

Notation, the same in every module, shape comment and chapter:

    B     batch: sequences
    T     new tokens, or queries, of a sequence
    S     keys and values that a query may see (cache and new ones); S = T without a cache
    H     query heads
    Hkv   key and value heads; H / Hkv query heads share one
    d     width of a head
    D     width of the model (hidden_size); usually D = H d
    F     inner width of the feed-forward block (intermediate_size)
    L     layers
    V     vocabulary
    N     outputs of a linear layer: its weight is [N, K]
    K     inputs of a linear layer
    M     rows of its input: y = x W^T with x [M, K] gives y [M, N]
    G     group size: inputs that share one scale
    R     rank of a low-rank factor
    E     experts
    P     processes of a parallel group
    q, k, v, o          queries, keys, values, attention's output
    x, w, y             input, weight, output of a linear layer
    scale, zero_point   q = round(x / scale) + zero_point,  x ~ (q - zero_point) scale

Shape comments read ``# [B, H, T, d]``. Dimensions are in this order: batch, heads, tokens, width.
"""

__version__ = "0.1.0"
