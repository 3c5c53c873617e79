"""`python -m efflib.engine` as a process: curl talks to it, and killed clients harm nobody."""

import json
import shutil
import subprocess

import pytest
import torch
from serving import as_a_process, expect_empty, health, until

from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.engine.__main__ import main
from efflib.models.checkpoint import save_pretrained

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
PROMPT = "def read(path):\n"


def curl(address: str, body: dict, *options: str) -> list[str]:
    """The command that posts a completion."""
    head = ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    return ["curl", "-sS", *options, f"{address}/v1/completions", *head]


@pytest.fixture(scope="module")
def address():
    with as_a_process("draft", "--blocks", "256", "--most", "8") as address:
        yield address


@pytest.fixture(scope="module")
def plain():
    model, tokenizer = zoo.load("draft"), zoo.load_tokenizer()

    def text(prompt: str, tokens: int) -> str:
        ids = torch.tensor([[zoo.BEGIN_ID, *tokenizer.encode(prompt).ids]])
        out = generate(model, ids, tokens)
        return tokenizer.decode(out[0, ids.shape[1] :].tolist())

    return text


def test_curl_reads_a_completion_and_a_stream(address, plain):
    body = {"model": "draft", "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    whole = subprocess.run(curl(address, body), capture_output=True, text=True, check=True)
    assert json.loads(whole.stdout)["choices"][0]["text"] == plain(PROMPT, 40)
    command = curl(address, {**body, "stream": True}, "-N")
    streamed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    *events, done, end = streamed.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(c["choices"][0]["text"] for c in chunks) == plain(PROMPT, 40)


def test_clients_that_are_killed_harm_nobody(address, plain):
    long = {"model": "draft", "prompt": "class A:\n", "max_tokens": 900, "temperature": 0}
    command = curl(address, {**long, "stream": True}, "-N")
    victims = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    quiet = subprocess.Popen(curl(address, long), stdout=subprocess.PIPE)  # reads no stream
    for victim in victims:
        assert victim.stdout.readline().startswith(b"data: ")
    until(lambda: health(address)["open"] == 5)
    body = {"model": "draft", "prompt": PROMPT, "max_tokens": 60, "temperature": 0}
    other = subprocess.Popen(curl(address, body), stdout=subprocess.PIPE, text=True)
    for victim in [*victims, quiet]:
        victim.kill()  # SIGKILL
        victim.wait()
        victim.stdout.close()
    out, _ = other.communicate()
    assert json.loads(out)["choices"][0]["text"] == plain(PROMPT, 60)
    expect_empty(address)


def test_a_checkpoint_in_hugging_faces_layout_is_served(tmp_path, plain):
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    save_pretrained(zoo.load("draft"), tmp_path, torch.float32)
    tokenizer = Tokenizer.from_str(zoo.load_tokenizer().to_str())
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(tmp_path)
    with as_a_process(str(tmp_path), "--name", "mine") as address:
        body = {"model": "mine", "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
        out = subprocess.run(curl(address, body), capture_output=True, text=True, check=True)
        assert json.loads(out.stdout)["choices"][0]["text"] == plain(PROMPT, 20)


def test_a_model_that_is_not_there_is_named(capsys, tmp_path):
    assert main(["no such model"]) == 2
    assert "'no such model' is no folder, and not in the zoo" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "no config.json" in capsys.readouterr().err
