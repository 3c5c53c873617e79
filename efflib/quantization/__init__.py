"""Quantization: fewer bits per weight or activation, with the error that costs.

Modules are loaded when they are named, e.g. `from efflib.quantization.linear import quantize`.

    linear   the affine grid x ~ s (q - z): parameters, codes, granularity, fake quantization
    kmeans   a codebook per tensor, channel or group, fitted by 1-D k-means
    size     total bits with all metadata (scales, zero points, codebooks)
    ptq      post-training quantization of every nn.Linear of a model
    smoothquant  outliers moved from activations into weights; simulated 8-bit W8A8
    shifting the mean or the middle of each channel moved into biases
    w8a8     the same with a real integer product
    awq, awq_model  weights scaled up before rounding where activations are large
    packing  codes side by side in words, and a linear that stores them so
    nf4      levels for normal weights, as in QLoRA
    kv, kv_codes  a key-value cache in codes: keys per channel and values per token
    ternary  three values a weight (BitNet b1.58), trained through the rounding, five in a byte
    llm_int8 outlier columns in floating point, all others as integers

Notation: W [N, K] is the weight of nn.Linear (N output channels, K inputs), G the group size,
b the bits of a code, q a code, s a scale, z a zero point.

Arguments: `granularity` is "tensor", "channel" or G; `group_size` is G and nothing else, where a
technique has groups only (AWQ, the key-value cache, W4A16).
"""
