"""Whatever is on or off, whoever runs beside it: a request gets the tokens it gets alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.decoding.sampling import Sampling
from efflib.engine.engine import Engine, Sizes, run
from efflib.engine.policies import prompts_first
from efflib.engine.proposals import Lookup, SmallModel
from efflib.engine.requests import Request
from efflib.engine.switches import ALL, build
from efflib.engine.weights import with_weights

VOCABULARY = 61


def requests(n: int, seed: int = 0, longest: int = 40) -> list[Request]:
    """Prompts and answers of unequal length; every other prompt begins alike."""
    draw = random.Random(seed)
    common = [draw.randrange(VOCABULARY) for _ in range(12)]
    made = []
    for i in range(n):
        own = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, longest))]
        made.append(Request(tuple(common + own if i % 2 else own), draw.randint(1, 30)))
    return made


@pytest.fixture(scope="module")
def weights(model):
    return {kind: with_weights(model, kind) for kind in ("as_is", "w4a16")}


@pytest.mark.parametrize("on", ALL, ids=lambda on: "".join("01"[x] for x in on))
def test_every_setting_gives_the_text_of_plain_generate(model, weights, alone, on):
    asked = requests(8)
    engine = build(model, on, Sizes(block=4, budget=24, most=4), tokens=96 * 2)
    plain = weights["w4a16" if on.quantized else "as_is"]
    assert run(engine, asked) == [alone(plain, r.prompt, r.max_tokens) for r in asked]
    assert engine.cache.free == engine.sizes.blocks
    assert (engine.accepted > 0) == on.speculative, "proposals never held: nothing was tried"
    assert (engine.found > 0) == on.paged, "no beginning was found again: nothing was tried"
    largest = max(len(did.work) for did in engine.log)
    assert largest == (1 if not on.batched else 4 if on.paged else 2)


@pytest.mark.parametrize("policy", [None, prompts_first])
def test_who_is_put_back_goes_on_as_if_nothing_had_been(model, alone, policy):
    asked = requests(12, seed=1)
    sizes = Sizes(blocks=24, block=4, budget=96, most=8)
    engine = Engine(model, sizes, proposer=Lookup(), **({"policy": policy} if policy else {}))
    assert run(engine, asked) == [alone(model, r.prompt, r.max_tokens) for r in asked]
    assert engine.put_back, "nobody was put back: nothing was tried"
    assert engine.cache.free == 24


@settings(max_examples=30)
@given(st.data())
def test_any_sizes_and_any_order_of_coming(model, alone, data):
    block = data.draw(st.sampled_from([1, 3, 8]))
    sizes = Sizes(
        blocks=-(-95 // block) + data.draw(st.integers(0, 20)),
        block=block,
        budget=data.draw(st.integers(1, 40)),
        most=data.draw(st.integers(1, 5)),
        gamma=data.draw(st.integers(0, 6)),
    )
    engine = Engine(model, sizes, proposer=Lookup())
    asked = requests(4, seed=data.draw(st.integers(0, 3)), longest=30)
    cancelled = data.draw(st.sets(st.integers(0, 3), max_size=2))
    names, answers, coming, steps = {}, {}, list(enumerate(asked)), 0
    while coming or engine.busy:
        if coming and (data.draw(st.booleans()) or not engine.busy):
            i, request = coming.pop(0)
            names[engine.add(request)] = i
            answers[i] = []
        for news in engine.step():
            answers[names[news.name]] += news.tokens
        steps += 1
        if steps == 7:
            for name in [n for n, i in names.items() if i in cancelled]:
                engine.cancel(name)
    for i, request in enumerate(asked):
        want = alone(model, request.prompt, request.max_tokens)
        assert answers[i] == want[: len(answers[i])]
        assert i in cancelled or answers[i] == want
    assert engine.cache.free == sizes.blocks
    assert not engine.proposer._known


def test_a_small_model_proposes_and_is_rolled_back(model, alone):
    asked = requests(6, seed=2)
    draft = SmallModel(model, blocks=200, block=4)  # itself: every proposal holds
    engine = Engine(model, Sizes(blocks=200, block=4, gamma=3), proposer=draft)
    assert run(engine, asked) == [alone(model, r.prompt, r.max_tokens) for r in asked]
    assert engine.accepted == engine.proposed > 0
    assert draft.cache.free == 200 and not draft.cache.tables
    assert len(engine.log) < sum(r.max_tokens for r in asked) / 6


def test_a_small_model_without_room_proposes_nothing_and_harms_nobody(model, alone):
    asked = requests(6, seed=2)
    draft = SmallModel(model, blocks=12, block=4)
    engine = Engine(model, Sizes(blocks=200, block=4, gamma=3), proposer=draft)
    assert run(engine, asked) == [alone(model, r.prompt, r.max_tokens) for r in asked]
    assert draft.cache.free == 12


def test_what_is_drawn_does_not_depend_on_company(model):
    sampling = Sampling(temperature=1.3, top_k=20)
    asked = [r._replace(sampling=sampling, seed=i) for i, r in enumerate(requests(6))]
    together = run(Engine(model, Sizes(blocks=200, block=4)), asked)
    one_by_one = [run(Engine(model, Sizes(blocks=200, block=4)), [r])[0] for r in asked]
    assert together == one_by_one
    assert len({tuple(answer[:3]) for answer in together}) > 1


def test_an_answer_ends_with_its_stop_token(model, alone):
    prompt = (1, 2, 3)
    whole = alone(model, prompt, 30)
    stop = whole[5]
    engine = Engine(model, Sizes(blocks=40, block=4), proposer=Lookup())
    engine.add(Request(prompt, 30, stop_ids=frozenset([stop])))
    news = [n for _ in range(40) for n in engine.step()]
    assert sum((n.tokens for n in news), []) == whole[: whole.index(stop) + 1]
    assert [n.finish for n in news if n.finish] == ["stop"]
    assert engine.cache.free == 40


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (Request((), 3), "prompt is empty"),
        (Request((1,), 0), "max_tokens"),
        (Request((VOCABULARY,), 3), "vocabulary"),
        (Request((-1,), 3), "token"),
        (Request((1,) * 90, 7), "may have 96"),
        (Request((1,), 3, Sampling(-1.0)), "temperature"),
    ],
)
def test_what_cannot_run_is_refused_at_once(model, request_, what):
    engine = Engine(model, Sizes(blocks=40, block=4))
    with pytest.raises(ValueError, match=what):
        engine.add(request_)
    assert not engine.busy and engine.step() == []
    engine.add(Request((1,) * 90, 6))


def test_memory_that_is_too_small_for_a_request_is_named(model):
    engine = Engine(model, Sizes(blocks=2, block=4))
    engine.add(Request((1,) * 8, 1))  # the last token needs no room
    with pytest.raises(ValueError, match="3 blocks of 2"):
        engine.add(Request((1,) * 8, 2))
