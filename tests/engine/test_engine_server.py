"""The endpoint, over real connections: openai's own client, many at once, clients that go."""

import asyncio
import json
import random

import httpx
import openai
import pytest
from engine_servers import LETTERS, WAIT, expect_empty, in_a_thread, letters

from efflib.engine.engine import Engine, Sizes
from efflib.engine.proposals import Lookup

SIZES = Sizes(blocks=120, block=4, budget=64, most=12)


@pytest.fixture(scope="module")
def engine(model):
    return Engine(model, SIZES, proposer=Lookup())


@pytest.fixture(scope="module")
def address(engine):
    with in_a_thread(engine, body=5000) as (address, _):
        yield address
        expect_empty(address)


@pytest.fixture
def client(address):
    with openai.OpenAI(
        base_url=f"{address}/v1", api_key="any", max_retries=0, timeout=WAIT
    ) as made:
        yield made


@pytest.fixture(scope="module")
def text(model, alone):
    def answer(prompt: str, tokens: int) -> str:
        language = letters()
        return language.decode(alone(model, language.encode(prompt), tokens))

    return answer


def test_openai_reads_a_completion(client, text):
    found = client.completions.create(model="small", prompt="hello", max_tokens=9, temperature=0)
    assert found.choices[0].text == text("hello", 9)
    assert found.choices[0].finish_reason == "length"
    counts = found.usage
    assert (counts.prompt_tokens, counts.completion_tokens, counts.total_tokens) == (5, 9, 14)
    assert found.object == "text_completion" and found.model == "small"


def test_openai_reads_a_stream(client, text):
    asked = {"model": "small", "prompt": "hello", "max_tokens": 20, "temperature": 0}
    options = {"include_usage": True}
    *chunks, last = client.completions.create(**asked, stream=True, stream_options=options)
    assert "".join(c.choices[0].text for c in chunks) == text("hello", 20)
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["length"]
    assert last.choices == [] and last.usage.completion_tokens == 20
    assert all(c.usage is None for c in chunks)


def test_openai_chats_whole_and_streamed(client, text):
    asked = {
        "model": "small",
        "messages": [
            {"role": "system", "content": "be "},
            {"role": "user", "content": [{"type": "text", "text": "kind"}]},
        ],
        "max_completion_tokens": 12,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked)
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.content == text("be kind", 12)
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    told = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert told == text("be kind", 12)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert len({c.id for c in chunks}) == 1


def test_a_chat_without_a_limit_goes_to_the_end_of_the_context(client):
    said = [{"role": "user", "content": "x" * 80}]
    found = client.chat.completions.create(model="small", messages=said, temperature=0)
    assert found.usage.total_tokens == 96


def test_several_prompts_and_several_answers(client, text):
    found = client.completions.create(
        model="small", prompt=["one", "two"], n=2, max_tokens=5, temperature=0
    )
    assert [c.text for c in found.choices] == [text(p, 5) for p in ("one", "one", "two", "two")]
    assert [c.index for c in found.choices] == [0, 1, 2, 3]
    assert found.usage.prompt_tokens == 6 and found.usage.completion_tokens == 20
    ids = client.completions.create(model="small", prompt=[1, 2], max_tokens=5, temperature=0)
    assert ids.choices[0].text == text("bc", 5)


def test_a_seed_draws_the_same_again_and_n_draw_differently(client):
    asked = {"model": "small", "prompt": "a", "n": 3, "max_tokens": 12, "temperature": 1.5}
    first, again, other = (
        [c.text for c in client.completions.create(**asked, seed=seed).choices]
        for seed in (1, 1, 50)
    )
    assert first == again and len(set(first)) == 3 and first != other


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stop_word_ends_the_answer_before_itself(client, text, streamed):
    whole = text("hello", 30)
    stop = whole[11:14]
    asked = {"model": "small", "prompt": "hello", "max_tokens": 30, "temperature": 0}
    found = client.completions.create(**asked, stop=["never such", stop], stream=streamed)
    chunks = [c.choices[0] for c in found] if streamed else [found.choices[0]]
    assert "".join(c.text for c in chunks) == whole[: whole.index(stop)]
    assert chunks[-1].finish_reason == "stop"


def test_models_are_listed(client):
    assert [m.id for m in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "efflib"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("large")


PROMPT = {"model": "small", "prompt": "a"}
CHAT = {"model": "small", "messages": [{"role": "user", "content": "a"}]}
BAD = [
    ("completions", {"prompt": "a"}, 400, "model"),
    ("completions", {"model": "small"}, 400, "prompt"),
    ("completions", {**PROMPT, "model": "other"}, 404, "model"),
    ("completions", {**PROMPT, "prompt": []}, 400, "prompt"),
    ("completions", {**PROMPT, "prompt": ""}, 400, "prompt"),
    ("completions", {**PROMPT, "prompt": [1, "a"]}, 400, None),
    ("completions", {**PROMPT, "prompt": [61]}, 400, "prompt"),
    ("completions", {**PROMPT, "prompt": [-1]}, 400, None),
    ("completions", {**PROMPT, "prompt": 7}, 400, "prompt"),
    ("completions", {**PROMPT, "max_tokens": 0}, 400, "max_tokens"),
    ("completions", {**PROMPT, "max_tokens": 2.5}, 400, "max_tokens"),
    ("completions", {**PROMPT, "max_tokens": 96}, 400, "prompt"),
    ("completions", {**PROMPT, "temperature": -1}, 400, "temperature"),
    ("completions", {**PROMPT, "temperature": "hot"}, 400, "temperature"),
    ("completions", {**PROMPT, "top_p": 0}, 400, "top_p"),
    ("completions", {**PROMPT, "n": 17}, 400, "n"),
    ("completions", {**PROMPT, "prompt": ["a"] * 9, "n": 2}, 400, "prompt"),
    ("completions", {**PROMPT, "stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
    ("completions", {**PROMPT, "stop": ""}, 400, "stop"),
    ("completions", {**PROMPT, "logprobs": 0}, 400, "logprobs"),
    ("completions", {**PROMPT, "best_of": 2}, 400, "best_of"),
    ("completions", {**PROMPT, "presence_penalty": 1}, 400, "presence_penalty"),
    ("completions", {**PROMPT, "temprature": 1}, 400, "temprature"),
    ("completions", [PROMPT], 400, None),
    ("chat/completions", {"model": "small", "messages": []}, 400, "messages"),
    ("chat/completions", {"model": "small", "messages": ["a"]}, 400, None),
    ("chat/completions", {**CHAT, "tools": [{"type": "function"}]}, 400, "tools"),
    ("chat/completions", {**CHAT, "response_format": {"type": "json_object"}}, 400, None),
    (
        "chat/completions",
        {"model": "small", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "messages[0].content",
    ),
    ("nothing", {}, 404, None),
]


@pytest.mark.parametrize(("path", "body", "status", "param"), BAD)
def test_what_does_not_fit_is_refused_in_openais_form(address, path, body, status, param):
    answer = httpx.post(f"{address}/v1/{path}", json=body, timeout=WAIT)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] == "invalid_request_error"
    if param:
        assert error["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"model": "small", "prompt": "a"}x'])
def test_a_body_that_is_no_json_is_refused(address, body):
    answer = httpx.post(f"{address}/v1/completions", content=body, timeout=WAIT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


ODD = [
    ({"temperature": 1e-300}, 200),
    ({"temperature": 2, "top_k": 10**30, "seed": -(10**18), "max_tokens": 3}, 200),
    ({"max_tokens": 10**18}, 400),
    ({"temperature": 1e999}, 400),
    ({"top_p": 1e-12}, 200),
]


@pytest.mark.parametrize(("more", "status"), ODD)
def test_odd_numbers_are_served_or_refused_and_break_no_step(address, more, status):
    body = json.dumps({**PROMPT, **more}).replace("Infinity", "1e999")
    answer = httpx.post(f"{address}/v1/completions", content=body, timeout=WAIT)
    assert answer.status_code == status


def test_half_a_surrogate_is_refused_or_served_but_no_fault(address):
    body = b'{"model": "small", "prompt": "\\ud800"}'
    assert httpx.post(f"{address}/v1/completions", content=body, timeout=WAIT).status_code in (
        200,
        400,
    )


def test_other_methods_and_long_bodies_are_refused(address):
    assert httpx.get(f"{address}/v1/completions", timeout=WAIT).json()["error"]["message"]
    long = httpx.post(
        f"{address}/v1/completions", json={**PROMPT, "prompt": "a" * 5000}, timeout=WAIT
    )
    assert long.status_code == 413 and long.json()["error"]["type"] == "invalid_request_error"


def test_openai_raises_what_it_should(client):
    with pytest.raises(openai.BadRequestError) as fault:
        client.completions.create(model="small", prompt="a" * 99)
    assert fault.value.code == "context_length_exceeded" and fault.value.param == "prompt"


def test_the_page_is_served(address):
    page = httpx.get(address, timeout=WAIT)
    assert page.headers["content-type"].startswith("text/html") and "/v1/models" in page.text


async def one_client(http, address, patience, *case):
    """As one_stream, but whoever has waited for so many seconds goes, in line or in an answer."""
    told = []
    try:
        async with asyncio.timeout(patience):
            return await one_stream(http, address, told, *case)
    except TimeoutError:
        return "".join(told), False


async def one_stream(http, address, told, prompt, tokens, leave_after, whole):
    """The text of a stream, cut where the client goes: after so many chunks; told: of each."""
    body = {"model": "small", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    url = f"{address}/v1/completions"
    async with http.stream("POST", url, json={**body, "stream": not whole}) as answer:
        assert answer.status_code == 200
        if whole:
            return json.loads(await answer.aread())["choices"][0]["text"], True
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                return "".join(told), True
            if line:
                told.append(json.loads(line.removeprefix("data: "))["choices"][0]["text"])
            if len(told) == leave_after:
                return "".join(told), False
    raise AssertionError("a stream ended without [DONE]")


def test_two_hundred_streams_of_which_many_are_left(address, engine, text):
    draw = random.Random(4)
    cases = []
    for i in range(200):
        prompt = "".join(draw.choices(LETTERS, k=draw.randint(1, 25)))
        leave = draw.randint(1, 8) if i % 3 == 0 else None
        patience = draw.uniform(0, 2) if i % 5 == 1 else None  # seconds
        cases.append((patience, prompt, draw.randint(1, 30), leave, i % 7 == 1))

    async def all_of_them():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=WAIT * 5, limits=limits) as http:
            return await asyncio.gather(*(one_client(http, address, *case) for case in cases))

    answers = asyncio.run(all_of_them())
    left = 0
    for (_, prompt, tokens, _, _), (told, ended) in zip(cases, answers, strict=True):
        want = text(prompt, tokens)
        assert told == want if ended else want.startswith(told)
        left += not ended
    assert left > 30
    expect_empty(address)
    assert not engine.cache.tables and not engine.proposer._known


def test_who_comes_while_the_line_is_full_is_told_to_come_again(model, alone):
    with in_a_thread(Engine(model, SIZES), open=3) as (address, _):
        url = f"{address}/v1/completions"
        many = httpx.post(url, json={**PROMPT, "n": 4}, timeout=WAIT)
        assert many.status_code == 429 and many.json()["error"]["type"] == "rate_limit_error"
        assert httpx.post(url, json={**PROMPT, "n": 3}, timeout=WAIT).status_code == 200
        expect_empty(address)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_fault_of_the_engine_is_told_and_the_next_request_is_served(model, text, streamed):
    engine, real = Engine(model, SIZES), Engine.step
    calls = []

    def step():
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("no room")
        return real(engine)

    engine.step = step
    with in_a_thread(engine) as (address, _):
        url = f"{address}/v1/completions"
        body = {**PROMPT, "max_tokens": 9, "temperature": 0}
        answer = httpx.post(url, json={**body, "stream": streamed}, timeout=WAIT)
        told = answer.text.split("data: ")[-1] if streamed else answer.text
        assert json.loads(told)["error"]["type"] == "server_error"
        again = httpx.post(url, json=body, timeout=WAIT).json()
        assert again["choices"][0]["text"] == text("a", 9)
        expect_empty(address)
