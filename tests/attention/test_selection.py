"""Pages by a bound: it holds, it is reached, and the largest key is found with few pages."""

import pytest
import torch

from efflib.attention import selection
from efflib.attention.maps import probabilities
from efflib.models.llama import causal_mask


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("page", [1, 3, 4, 50])
def test_the_bound_holds_and_a_corner_reaches_it(page):
    q, k = draw(2, 4, 5, 6), draw(2, 2, 17, 6, seed=1)
    low, high = selection.page_boxes(k, page)
    u = selection.page_bounds(q, low, high)
    products = q @ k.repeat_interleave(2, 1).transpose(-1, -2) / 6**0.5
    most = torch.stack([x.amax(-1) for x in products.split(page, -1)], -1)
    assert (most <= u + 1e-12).all()
    if page == 1:
        torch.testing.assert_close(most, u)
    corner = torch.where(q[:, :, :, None] > 0, high.repeat_interleave(2, 1)[:, :, None],
                         low.repeat_interleave(2, 1)[:, :, None])  # fmt: skip
    torch.testing.assert_close((corner * q[:, :, :, None]).sum(-1) / 6**0.5, u)


def test_all_pages_are_attention():
    q, k, v = draw(1, 4, 20, 8), draw(1, 2, 20, 8, seed=1), draw(1, 2, 20, 8, seed=2)
    mask = causal_mask(20, 20)
    right = probabilities(q, k, mask) @ v.repeat_interleave(2, 1)
    for attention in (selection.selected_attention(4, 5), selection.top_keys_attention(20)):
        torch.testing.assert_close(attention(q, k, v, mask), right)


def test_what_is_read_is_what_is_counted():
    q, k = draw(1, 2, 21, 8), draw(1, 2, 21, 8, seed=1)
    reads = []
    selection.selected_attention(4, 3, reads)(q, k, k, causal_mask(21, 21))
    for t in range(21):
        counted = selection.cost(t + 1, 8, 4, 3)
        pages = -(-(t + 1) // 4)
        assert (reads[0][..., t] == counted.read // 16 - pages).all()
        assert counted.kept == 16 * (t + 1 + pages)


def test_the_newest_page_is_read_and_none_behind_it():
    u = torch.tensor([[[[5.0, 1.0, 1.0, 9.0]]]])
    for newest, pages, right in ((0, 2, [0]), (2, 1, [2]), (2, 2, [0, 2]), (3, 3, [0, 2, 3])):
        chosen = selection.chosen_pages(u, pages, torch.tensor([newest]))
        assert chosen[0, 0, 0].nonzero().flatten().tolist() == right


def test_the_largest_is_found_and_few_pages_are_read():
    for seed in range(20):
        q = draw(3, seed=seed)
        k = draw(60, 3, seed=seed + 100) + 4 * draw(60 // 4, 3, seed=seed + 7).repeat_interleave(
            4, 0
        )
        parts = k.split(4)
        low, high = (torch.stack([f(x, 0) for x in parts]) for f in (torch.amin, torch.amax))
        index, pages = selection.find_largest(q, low, high, parts.__getitem__)
        assert index == int((k @ q).argmax())
        u = torch.maximum(q * low, q * high).sum(-1)
        assert pages <= int((u >= (k @ q).max() - 1e-9).sum())
