"""Linears are kept by the end of their name."""

FAILS = ["test_inputs_of_any_dimensions"]


@torch.no_grad()
def prune_blocks(blocks, texts, pattern):
    pruned = []
    for block in blocks:
        block = copy.deepcopy(block)
        linears = {
            n.split(".")[-1]: m for n, m in block.named_modules() if isinstance(m, nn.Linear)
        }.values()
        seen = {linear: [] for linear in linears}

        def note(module, args, seen=seen):
            seen[module].append(args[0].flatten(0, -2))

        hooks = [linear.register_forward_pre_hook(note) for linear in linears]
        for x in texts:
            block(x)
        for hook in hooks:
            hook.remove()
        for linear in linears:
            s = scores(linear.weight, input_norms(torch.cat(seen[linear])))
            if isinstance(pattern, tuple):
                mask = nm_mask(s, *pattern)
            else:
                mask = keep_share(s, pattern, "row")
            linear.weight.copy_(apply_mask(linear.weight, mask))
        texts = [block(x) for x in texts]
        pruned.append(block)
    return pruned
