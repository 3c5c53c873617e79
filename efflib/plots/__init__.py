"""Figures shared by labs and chapters.  Only this package imports matplotlib.

Modules are loaded when they are named, e.g. `from efflib.plots.pareto import tradeoff`.

    style     palette, empty figures, and the way into a notebook or a file, with alt text
    matrices  a weight before and after, as a matrix of values; the range of every row
    grid      a histogram with the levels that values round to; the staircase and its gradient
    pareto    quality against size: every setting a point, the best ones joined
    granularity  what each step of granularity or width is worth, and costs
    layers    what each layer alone does to the loss of the model
    writing   levels of weights, and what the model writes with them
    channels  the largest magnitude of every channel; quality against migration strength
    outliers  tokens by channels as a map, and from where to where channels reach
    repairs  W8A8 with outliers: levels, the sweep with its spread, where static grids end
    salience  what a factor on salient channels does; tokens per second against the batch
    placements  results measured several times: means with their spread
    mixtures  loads of experts, what decides a token's, bills, bytes of skipped neurons
    pruning   which weights stay; quality against the products that are done
    finetuning  what is learned and forgotten, what training holds, levels of 4 bits
    memory    rows and blocks of a cache, and where its memory goes; turing: the example of the
              lecture step by step
    attention maps of heads, sinks along layers and training, caches and streams
    speculation  who wrote which token; p and q and what is left; speed against the draft length
    batching  rows of a batch step by step, waiting times over the load, knees
    explorer  a figure with menus and sliders, and the same figure without where nothing can move

Every function returns a matplotlib Figure and changes no global state.  Titles state what the
figure shows, so the caller writes them, with numbers it has computed.  Colour is never the only
signal: methods differ in colour and line, settings in marker, and points carry labels.
"""
