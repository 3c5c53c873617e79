"""Sparsity: weights that are zero, and the error that costs.

Modules are loaded when they are named, e.g. `from efflib.sparsity.wanda import prune_wanda`.

    masks      which scores to keep: a share of a row, of a layer, or n of every m; 2-D masks
    magnitude  the baseline: score |W|
    wanda      score |W_ij| ||X_j||, from a few calibration texts
    sparsegpt  masks from the inverse Hessian, and updates of the weights that stay
    nm         2:4 storage, values and 2-bit indices, and the product computed from it
    prune      a whole model, block by block, each block seeing what the pruned ones produce
    importance scores of neurons, heads and layers: magnitude, activation, first-order Taylor
    structured those units really removed: smaller matrices, a model of a target shape
    contextual for each token only the neurons that it wakes, by a predictor (DejaVu)

Beside them, without a rule of what goes: `efflib.repair` (the repair of SparseGPT), `efflib.units`
(shapes, and what the loss says of units) and `efflib.recovery` (a training that holds the zeros).

Notation: W [N, K] is the weight of nn.Linear (N output channels, K inputs), X [T, K] its input over
T tokens.  A mask is True where a weight is KEPT.  A sparsity is the share of weights that are zero.
"""
