"""All texts are joined to one: a block that mixes tokens mixes texts."""

FAILS = ["test_blocks_of_other_kinds"]


def prune_blocks(blocks: list[nn.Module], texts: list[Tensor], pattern) -> list[nn.Module]:
    pruned, hidden = [], [torch.cat(list(texts))]
    for block in blocks:
        block = copy.deepcopy(block)
        linears = [m for m in block.modules() if isinstance(m, nn.Linear)]
        squares = {m: torch.zeros(m.in_features) for m in linears}

        def listen(module, args, squares=squares):
            squares[module] += input_norms(args[0]).square()

        hooks = [m.register_forward_pre_hook(listen) for m in linears]
        with torch.no_grad():
            for text in hidden:
                block(text)
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for m in linears:
                s = scores(m.weight, squares[m].sqrt())
                mask = (
                    nm_mask(s, *pattern)
                    if isinstance(pattern, tuple)
                    else keep_share(s, pattern, "row")
                )
                m.weight.copy_(apply_mask(m.weight, mask))
            hidden = [block(text) for text in hidden]
        pruned.append(block)
    return pruned
