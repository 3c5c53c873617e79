"""`python -m efflib.kv`: what it prints follows from the planner, and mistakes are one line."""

import json

import pytest

from efflib import kv
from efflib.serving.decoder import MODELS
from efflib.serving.memory import GiB, KiB, plan


def test_the_lectures_figures(capsys):
    assert kv.main(["--list"]) == 0
    rows = dict(line.rsplit("G", 1) for line in capsys.readouterr().out.splitlines()[1:])
    each = {name.split()[0]: size.strip() for name, size in rows.items()}
    assert each["llama-2-7b"] == "512 KiB" and each["llama-2-13b"] == "800 KiB"
    assert each["llama-2-70b-mha"] == "2.5 MiB" and each["llama-2-70b"] == "320 KiB"
    assert each["llama-3.1-405b"] == "504 KiB"


def test_a_70b_does_not_fit_one_gpu_and_fits_four(capsys):
    assert kv.main(["llama-3.1-70b", "--gpu", "H100", "--context", "8192"]) == 0
    assert "the weights alone do not fit: 2 x H100" in capsys.readouterr().out
    assert kv.main(["llama-3.1-70b", "--gpus", "4"]) == 0
    out = capsys.readouterr().out
    expected = plan(MODELS["llama-3.1-70b"], 320 * GiB, 8192).batch
    assert f"sequences that fit   {expected}\n" in out and "2.5 GiB of 8192 tokens" in out


def test_levers_of_a_7b(capsys):
    m = MODELS["llama-2-7b"]
    found = kv.levers(m, 24 * GiB, 4096, *kv.formats(16, 16))
    assert found["as asked"] == 4 and list(found) == list(kv.LEVERS)
    assert found["half the context"] == plan(m, 24 * GiB, 2048).batch
    assert max(found, key=found.get) == "8 key heads"


def test_a_config_of_ones_own(tmp_path, capsys):
    config = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 80}
    config |= {"num_hidden_layers": 3, "num_attention_heads": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert kv.main([str(tmp_path), "--context", "16", "--weights", "4", "--cache", "2"]) == 0
    out = capsys.readouterr().out
    assert "at 3 bits a value" in out and "6 key heads for 6 query heads" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llama-2-7"], "the nearest is 'llama-2-7b'"),
        (["llama-2-7b", "--gpu", "V100"], "no GPU 'V100'"),
        (["llama-2-7b", "--context", "0"], "context=0 must be"),
        (["llama-2-7b", "--cache", "0"], "bits=0 must be"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert kv.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1


def test_sizes_have_their_unit():
    assert kv.size(512 * KiB) == "512 KiB" and kv.size(1535 * KiB) == "1.499 MiB"
    assert kv.size(3) == "3 bytes"
