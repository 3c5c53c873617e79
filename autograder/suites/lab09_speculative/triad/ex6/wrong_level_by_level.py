"""Depths that are right only where nodes come level by level."""

FAILS = ["test_mask_by_hand", "test_masks_of_random_trees"]


def depths(parents: list[int]) -> list[int]:
    out, level = [0], [0]
    for i in range(1, len(parents)):
        if parents[i] not in level:
            level = [k for k in range(i) if out[k] == out[-1]]
        out.append(out[level[0]] + 1)
    return out
