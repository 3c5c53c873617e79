"""Sparsity: weights that are zero, and the error that costs.

Modules are loaded when they are named, e.g. `from efflib.sparsity.wanda import prune_wanda`.

    masks      which scores to keep: a share of a row, of a layer, or n of every m; 2-D masks
    magnitude  the baseline: score |W|
    wanda      score |W_ij| ||X_j||, from a few calibration texts
    nm         n:m sparsity and its compressed storage: values and 2-bit indices
    prune      a whole model, layer by layer, each layer seeing what the pruned ones produce

Notation: W [N, K] is the weight of nn.Linear (N output channels, K inputs), X [T, K] its input over
T tokens.  A mask is True where a weight is KEPT.  A sparsity is the share of weights that are zero.
"""
