"""A function for one block; squares of calls, flattened by reshape; the pass under no_grad."""


def prune_block(block, texts, pattern):
    block, sums = copy.deepcopy(block), {}

    def collect(module, args):
        rows = args[0].reshape(-1, module.in_features)
        sums[module] = sums.get(module, 0) + input_norms(rows).double() ** 2

    handles = [
        m.register_forward_pre_hook(collect) for m in block.modules() if isinstance(m, nn.Linear)
    ]
    try:
        for x in texts:
            block(x)
    finally:
        for handle in handles:
            handle.remove()
    for linear, squares in sums.items():
        s = scores(linear.weight.detach(), squares.sqrt().float())
        if isinstance(pattern, tuple):
            n, m = pattern
            mask = nm_mask(s, n, m)
        else:
            mask = keep_share(s, pattern, "row")
        linear.weight.data.mul_(mask)
    return block, [block(x) for x in texts]


def prune_blocks(blocks, texts, pattern):
    new = []
    with torch.no_grad():
        for block in blocks:
            block, texts = prune_block(block, texts, pattern)
            new.append(block)
    return new
