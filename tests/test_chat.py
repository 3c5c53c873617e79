"""The chat program: what it prints, what its models are, and one line for what is wrong."""

import io
import subprocess
import sys

import pytest
import torch

from efflib import chat, zoo
from efflib.decoding.sampling import generate
from efflib.models import Llama
from efflib.quantization.packing import W4A16Linear, stored_bytes
from efflib.quantization.size import quantizable_linears, weight_bits
from efflib.quantization.w8a8 import Int8Linear

PROMPT = "def main():\n    return "


@pytest.fixture(scope="module")
def models():
    return {quant: chat.load("draft", quant) for quant in chat.QUANTS}


@pytest.fixture
def few_tokens(monkeypatch):
    monkeypatch.setattr(chat, "NEW_TOKENS", 12)


def linear_bytes(kind):
    """Bytes of the draft's quantized weights, by formula."""
    linears = quantizable_linears(zoo.load("draft")).values()
    shapes = [tuple(linear.weight.shape) for linear in linears]
    if kind == "int8":
        return sum(n * k + 4 for n, k in shapes)  # a float32 scale for each weight
    return sum(weight_bits(shape, 4, chat.GROUP, symmetric=False) / 8 for shape in shapes)


def test_weights_take_the_bytes_of_their_format(models):
    fp32 = stored_bytes(models["fp32"])
    linears = quantizable_linears(models["fp32"]).values()
    rest = fp32 - sum(4 * linear.weight.numel() for linear in linears)
    kinds = {"w8a8": Int8Linear, "w4a16": W4A16Linear}
    for quant, kind in kinds.items():
        found = [m for m in models[quant].modules() if isinstance(m, kind)]
        assert len(found) == len(linears) and not quantizable_linears(models[quant])
    assert stored_bytes(models["w8a8"]) == rest + linear_bytes("int8")
    words = sum(
        m.zeros.numel() * 4 - m.scale.numel() / 2
        for m in models["w4a16"].modules()
        if isinstance(m, W4A16Linear)
    )  # zero points fill up their last word
    assert stored_bytes(models["w4a16"]) == rest + linear_bytes("int4") + words


@torch.no_grad()
def test_quantized_models_know_what_the_model_knows(models):
    """Quantized perplexity is that of fp32 within 10 %; of a uniform guess it would be 2048."""
    cost = {q: zoo.perplexity(m, tokens=1024, context=64, stride=64) for q, m in models.items()}
    for quant in ("w8a8", "w4a16"):
        assert cost[quant] < 1.1 * cost["fp32"], cost


def test_pieces_are_the_text_of_the_tokens(models, few_tokens):
    model = models["fp32"]
    pieces = list(chat.continuation(model, PROMPT, torch.Generator().manual_seed(3)))
    ids = generate(
        model,
        chat.prompt_ids(model, PROMPT),
        12,
        chat.SAMPLING,
        torch.Generator().manual_seed(3),
    )
    new = ids[0, chat.prompt_ids(model, PROMPT).shape[1] :].tolist()
    assert len(pieces) == 12
    assert "".join(piece for piece, _ in pieces) == zoo.load_tokenizer().decode(new)
    assert all(
        earlier <= later for (_, earlier), (_, later) in zip(pieces, pieces[1:], strict=False)
    )


def test_a_character_of_several_tokens_comes_whole(models, monkeypatch):
    ids = zoo.load_tokenizer().encode("a\U0001f600b").ids
    monkeypatch.setattr(chat, "NEW_TOKENS", len(ids))
    monkeypatch.setattr(chat, "stream", lambda *a: (torch.tensor([i]) for i in ids))
    assert len(ids) > 3, "this test needs a character of several tokens"
    pieces = [p for p, _ in chat.continuation(models["fp32"], "", torch.Generator())]
    assert "".join(pieces) == "a\U0001f600b"
    assert not any(chat.UNFINISHED in piece for piece in pieces)


@pytest.mark.parametrize("quant", chat.QUANTS)
def test_one_shot_prints_the_text_and_the_figures(quant, few_tokens, capsys, models, monkeypatch):
    monkeypatch.setattr(chat, "load", lambda name, quant: models[quant])
    assert chat.main(["--model", "draft", "--quant", quant, "--prompt", PROMPT]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(PROMPT) and len(out) > len(PROMPT) + 1
    assert f"[draft, {quant}: {stored_bytes(models[quant]) / 1e6:.2f} MB of weights" in err
    assert "[12 tokens, " in err and "tokens/s]" in err


def test_lines_are_continued_until_the_input_ends(few_tokens, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("import os\n" + "x" * 5000 + "\nclass A:\n"))
    assert chat.main(["--model", "draft"]) == 0
    out, err = capsys.readouterr()
    assert "import os" in out and "class A:" in out
    assert err.count("tokens/s]") == 2 and "the model reads at most" in err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--model", "gpt5"], "gpt5"),
        (["--quant", "w2a2"], "w2a2"),
        (["--colour", "red"], "--colour"),
        (["--prompt"], "--prompt"),
        (["--model", "draft", "--prompt", "a b " * 3000], "tokens"),
    ],
)
def test_a_bad_option_gets_one_line_that_names_it(arguments, name, capsys):
    with pytest.raises(SystemExit) as stop:
        chat.main(arguments)
    err = capsys.readouterr().err
    last = err.splitlines()[-1]
    assert stop.value.code == 2 and name in last and last.startswith("efflib.chat: ")
    assert len([line for line in err.splitlines() if not line.startswith("[")]) == 1


def test_a_damaged_checkpoint_is_named_in_one_line(capsys, monkeypatch):
    def damaged(*args):
        raise zoo.CorruptCheckpoint("draft/model.safetensors is damaged")

    monkeypatch.setattr(zoo, "load", damaged, raising=False)
    with pytest.raises(SystemExit):
        chat.main(["--model", "draft"])
    assert capsys.readouterr().err == "efflib.chat: draft/model.safetensors is damaged\n"


def test_another_format_is_refused_by_name():
    with pytest.raises(ValueError, match="'int3'"):
        chat.load("draft", "int3")


def test_it_runs_as_a_module():
    run = subprocess.run(
        [sys.executable, "-m", "efflib.chat", "--model", "none"], capture_output=True, text=True
    )
    assert run.returncode == 2 and run.stderr.count("\n") == 1 and "'none'" in run.stderr


def test_the_models_are_llamas():
    assert all(isinstance(zoo.load(name), Llama) for name in zoo.names())
