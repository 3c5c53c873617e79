"""Measured in eval mode; then all parts get the mode of their block."""

FAILS = ["test_what_stays", "test_all_else_stays"]


canonical = prune_blocks


def prune_blocks(blocks, texts, pattern):
    return [
        new.train(old.training)
        for new, old in zip(canonical(blocks, texts, pattern), blocks, strict=True)
    ]
