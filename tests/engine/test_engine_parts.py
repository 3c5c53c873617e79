"""The parts of the engine, each by itself."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib import zoo
from efflib.decoding.drafts import lookup
from efflib.engine.blocks import BlockCache
from efflib.engine.choosing import agreed
from efflib.engine.passes import Piece, mixed_pass
from efflib.engine.proposals import Lookup
from efflib.engine.weights import weight_bytes, with_weights
from efflib.engine.words import Words
from efflib.serving.blocks import OutOfBlocks
from efflib.serving.roofline import decode_step


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 6), st.integers(1, 4))
def test_lookup_in_a_text_that_grows_is_that_of_drafts(text, count, longest):
    grows = Lookup(longest)
    for end in range(1, len(text) + 1):
        found = grows.propose({7: text[:end]}, {7: count})[7]
        assert found == lookup(torch.tensor(text[:end]), count, longest).tolist()


def test_a_mixed_pass_gives_the_logits_of_each_alone(model):
    torch.manual_seed(0)
    texts = torch.randint(61, (4, 60)).tolist()
    cache = BlockCache(model, blocks=100, block=4)
    before = [(0, 0, 30), (1, 0, 9), (2, 0, 57)]  # request, start, stop
    now = [(2, 57, 58), (0, 30, 35), (3, 0, 40), (1, 9, 10)]
    for name in range(4):
        cache.start(name, [])
        cache.grow(name, 60)
    for some in (before, now):
        pieces = [Piece(n, a, texts[n][a:b], b - a) for n, a, b in some]
        logits = mixed_pass(model, cache, pieces).split([p.wanted for p in pieces])
    for (name, start, stop), found in zip(now, logits, strict=True):
        want = model(torch.tensor([texts[name][:stop]]))[0, start:]
        assert torch.allclose(found, want, rtol=0, atol=1e-12)
    assert model.model.layers[0].self_attn.attention.__name__ == "sdpa", "the model was changed"


@pytest.mark.parametrize("name", ["target", "vanilla", "zero_sink", "relu", "moe"])
def test_models_of_the_zoo_run_with_an_attention_of_their_own(name):
    model = zoo.load(name).double()
    texts = [[0, *range(100, 100 + n)] for n in (3, 20, 33)]
    cache = BlockCache(model, blocks=20, block=8)
    for i, text in enumerate(texts):
        cache.start(i, [])
        cache.grow(i, len(text))
    pieces = [Piece(i, 0, text, 1) for i, text in enumerate(texts)]
    found = mixed_pass(model, cache, pieces)
    want = torch.stack([model(torch.tensor([text]))[0, -1] for text in texts])
    assert torch.allclose(found, want, rtol=0, atol=1e-9)


def test_nothing_is_wanted_in_the_middle_of_a_prompt(model):
    cache = BlockCache(model, blocks=3, block=4)
    cache.start(0, [])
    cache.grow(0, 5)
    assert mixed_pass(model, cache, [Piece(0, 0, [1, 2, 3, 4, 5], 0)]).shape == (0, 61)


def test_blocks_grow_roll_back_and_are_found_again(model):
    cache = BlockCache(model, blocks=6, block=4)
    text = list(range(11))
    assert cache.start(1, text) == 0
    cache.grow(1, 11)
    assert cache.start(2, text) == 0, "what is not settled was found"
    cache.settle(1, text, 11)
    assert cache.start(3, text) == 8 and cache.tables[3] == cache.tables[1][:2]
    assert cache.start(4, text[:8]) == 4, "one token is left to compute"
    assert cache.start(5, [*text[:7], 60]) == 4, "another text was found"
    cache.grow(3, 16)
    assert cache.free == 1
    with pytest.raises(OutOfBlocks):
        cache.grow(2, 8)
    assert cache.free == 1 and cache.tables[2] == []
    cache.roll_back(3, 9)
    assert cache.free == 2 and len(cache.tables[3]) == 3
    with pytest.raises(ValueError, match="settled"):
        cache.roll_back(1, 4)
    for name in range(1, 6):
        cache.end(name)
    assert cache.free == 6 and cache.start(6, text) == 8, "what was left can be found"
    with pytest.raises(ValueError, match="already"):
        cache.start(6, text)


def test_a_refused_proposal_leaves_no_trace_in_a_block_that_is_found(model, alone):
    """Proposals are written behind the text; a block is known only by tokens that stayed."""
    cache, text = BlockCache(model, blocks=6, block=4), [1, 2, 3]
    cache.start(0, text)
    cache.grow(0, 6)
    mixed_pass(model, cache, [Piece(0, 0, [*text, 50, 51, 52], 4)])  # three wrong proposals
    cache.roll_back(0, 3)
    cache.settle(0, text, 3)
    assert cache.start(1, [1, 2, 3, 50, 51]) == 0


def test_agreed_ends_with_the_first_token_that_was_not_proposed():
    assert agreed([], [5]) == [5]
    assert agreed([5, 6, 7], [5, 6, 7, 8]) == [5, 6, 7, 8]
    assert agreed([5, 6, 7], [5, 9, 7, 8]) == [5, 9]
    assert agreed([4], [5, 5]) == [5]


@given(st.text("ab\u00e9", max_size=30), st.lists(st.text("ab\u00e9", min_size=1, max_size=4)))
def test_pieces_of_words_are_the_text_before_the_first_stop(text, stops):
    data = list(text.encode())
    words = Words(lambda ids: bytes(ids).decode(errors="replace"), stops)
    pieces = []
    for i, byte in enumerate(data):
        pieces.append(words.add([byte], last=i + 1 == len(data)))
        if words.stopped:
            break
        sure = "".join(pieces)
        assert not any(stop in sure for stop in stops)
    ends = [text.find(stop) for stop in stops if stop in text]
    want = text[: _first_end(text, stops)] if ends else text
    assert "".join(pieces) == words.text == want
    assert words.stopped == bool(ends)


def _first_end(text: str, stops: list[str]) -> int:
    """Where the stop word begins that is complete first; of those, the one that begins first."""
    for end in range(len(text) + 1):
        if found := [end - len(s) for s in stops if text[:end].endswith(s)]:
            return min(found)
    raise AssertionError


def test_half_a_character_is_told_at_the_end():
    words = Words(lambda ids: bytes(ids).decode(errors="replace"))
    assert words.add([0x61, 0xC3], last=False) == "a"
    assert words.add([], last=True) == "\ufffd"


def test_four_bits_take_the_place_of_the_linears_and_not_of_the_table(model):
    small = with_weights(copy.deepcopy(model).float(), "w4a16")
    assert with_weights(model, "as_is") is model
    linear = small.model.layers[0].mlp.up_proj
    assert linear.words.numel() == 48 * 32 // 8
    assert small.lm_head.weight.shape == (61, 32)
    with pytest.raises(ValueError, match="w4a16"):
        with_weights(model, "int3")
    with pytest.raises(ValueError, match="no linear"):
        with_weights(small, "w4a16")


def test_bytes_of_a_pass_are_those_of_the_roofline():
    model = zoo.load("target")
    assert weight_bytes(model) == 2 * decode_step(model).weights  # it counts 16 bits, this is fp32
