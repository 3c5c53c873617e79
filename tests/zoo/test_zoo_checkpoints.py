"""What is shipped: loads, is undamaged, small enough, and as good as its card says."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

from efflib import zoo
from efflib.models import Llama, from_pretrained, save_pretrained
from efflib.models.llama import sdpa
from efflib.zoo import cards, checkpoints, corpus
from efflib.zoo.checkpoints import CHECKED, FOLDER, CorruptCheckpoint, load, names, record
from efflib.zoo.train import RECIPES
from efflib.zoo.training import saved_recipe

SHIPPED = names()
LIMIT = 30_000_000  # bytes; the two mixtures are 10 million of them


def report_of(name: str) -> dict:
    return json.loads((FOLDER / name / "training.json").read_text())


@pytest.fixture
def copied(tmp_path):
    """A copy of the smallest checkpoint that may be damaged."""
    shutil.copy(FOLDER / "tokenizer.json", tmp_path)
    shutil.copytree(FOLDER / "draft", tmp_path / "draft")
    record(tmp_path)
    return tmp_path


def test_the_zoo_has_what_the_recipes_make():
    assert {"target", "draft"} <= set(names()) <= set(RECIPES)
    assert names() == zoo.names()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_checkpoint_is_what_its_recipe_says(name):
    model, report = zoo.load(name), report_of(name)
    assert isinstance(model, Llama) and not model.training
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert model.config == RECIPES[name].model
    assert report["finished"] and report["step"] == report["recipe"]["steps"]
    recipe = saved_recipe(report["recipe"])  # the older ones name no context: it was 256
    assert report["context"] == recipe.context
    assert report["tokens"] == report["step"] * recipe.batch * recipe.context
    assert report["parameters"] == sum(p.numel() for p in model.parameters())
    assert [e["step"] for e in report["log"]] == sorted(e["step"] for e in report["log"])


@pytest.mark.parametrize("name", [n for n in SHIPPED if n != "zero_sink"])
def test_transformers_gives_the_same_logits(name):
    from transformers import AutoModelForCausalLM

    ids = zoo.calibration("code", n=2, length=100)
    theirs = AutoModelForCausalLM.from_pretrained(FOLDER / name, dtype=torch.float32)
    with torch.no_grad():
        # Logits of order 10 from some six layers of fp32 sums: 1e-4 is ten roundings of 10.
        torch.testing.assert_close(load(name)(ids), theirs(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name, split", [("draft", "code"), ("draft", "prose"), ("target", "code")])
def test_the_card_holds_what_is_measured(name, split):
    report = report_of(name)
    tokens = report["sample_tokens"]
    measured = zoo.perplexity(zoo.load(name), split, tokens, report["context"], report["stride"])
    same_text = report["digests"][f"{split} held-out"] == corpus.digest(split, True)
    # fp32 on another processor moves a loss by some 1e-5; another Python's text is other text,
    # of which one module in thirty may have changed much.
    assert measured == pytest.approx(
        report[split]["sample_perplexity"], rel=1e-3 if same_text else 0.1
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_is_written_from_the_report(name):
    size = (FOLDER / name / "model.safetensors").stat().st_size
    assert (FOLDER / name / "card.md").read_text() == cards.card(report_of(name), size)


def test_the_draft_costs_at_most_a_quarter_of_the_target():
    draft, target = zoo.load("draft"), zoo.load("target")
    for keys in (0, 64, 256):  # attention over S keys adds 4 S H d FLOPs in every layer
        cost = [
            cards.flops_per_token(m) + 4 * keys * m.config.hidden_size * m.config.num_hidden_layers
            for m in (draft, target)
        ]
        assert 4 * cost[0] <= cost[1]


def test_the_target_has_an_attention_sink_and_beats_the_draft():
    draft, target = report_of("draft"), report_of("target")
    assert max(max(row) for row in target["begin_attention"]) > 0.1
    for split in corpus.SPLITS:
        assert target[split]["perplexity"] < draft[split]["perplexity"]


def test_most_neurons_of_the_relu_model_are_zero():
    shares = {}
    for name in ("relu", "target"):
        model, zeros = zoo.load(name), []
        for layer in model.model.layers:
            layer.mlp.down_proj.register_forward_pre_hook(
                lambda _, inputs, zeros=zeros: zeros.append((inputs[0] == 0).float().mean().item())
            )
        with torch.no_grad():
            model(zoo.calibration("code", n=4, length=200))
        shares[name] = sum(zeros) / len(zeros)
    assert shares["relu"] > 0.5  # seen: 0.64; layer by layer 0.30, 0.82, 0.83, 0.61
    assert shares["target"] == 0


def test_a_checkpoint_with_a_zero_sink_loads_with_it(tmp_path):
    shutil.copytree(FOLDER / "draft", tmp_path / "zero")
    ids = zoo.calibration("code", n=1, length=20)
    plain = checkpoints.load_unchecked(tmp_path / "zero")(ids)
    checkpoints.mark_zero_sink(tmp_path / "zero")
    marked = checkpoints.load_unchecked(tmp_path / "zero")
    assert not torch.allclose(marked(ids), plain)
    marked.set_attention(sdpa)
    assert torch.equal(marked(ids), plain)


def test_the_table_of_models_has_a_line_and_a_purpose_for_each():
    from efflib.zoo import __main__ as summary

    lines = summary.table().splitlines()
    assert set(summary.PURPOSE) == set(names()) and len(lines) == 2 + len(names())
    assert f"| {report_of('target')['code']['perplexity']:.2f} |" in summary.table()
    page = FOLDER.parents[2] / "course" / "chapters" / "_generated" / "zoo.md"
    assert page.read_text() == summary.table(), "run: make figures"


def test_all_that_is_shipped_is_small():
    assert sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file()) <= LIMIT


def test_hashes_are_those_of_the_files():
    before = (FOLDER / checkpoints.HASHES).read_text()
    hashes = json.loads(before)
    assert hashes == {key: checkpoints.sha256(FOLDER / key) for key in hashes}
    assert set(hashes) == {"tokenizer.json"} | {f"{n}/{f}" for n in SHIPPED for f in CHECKED}


@pytest.mark.parametrize("file", CHECKED)
def test_a_damaged_file_is_named(copied, file):
    assert isinstance(load("draft", copied), Llama)
    path = copied / "draft" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match=f"draft/{file} is damaged"):
        load("draft", copied)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptCheckpoint, match=f"draft/{file} is damaged"):
        load("draft", copied)
    path.unlink()
    with pytest.raises(CorruptCheckpoint, match=f"draft/{file} is missing"):
        load("draft", copied)


def test_a_local_folder_goes_through_transformers(tmp_path):
    from transformers import LlamaForCausalLM

    save_pretrained(from_pretrained(FOLDER / "draft"), tmp_path / "mine")
    model = zoo.load(str(tmp_path / "mine"))
    assert isinstance(model, LlamaForCausalLM) and not model.training
    ours = zoo.perplexity(zoo.load("draft"), "prose", tokens=320)
    assert zoo.perplexity(model, "prose", tokens=320) == pytest.approx(ours, rel=1e-4)


def test_an_unknown_name_lists_the_zoo():
    with pytest.raises(ValueError, match=r"'./no-such-folder' in the zoo \(draft, .*target.*\)"):
        zoo.load("./no-such-folder")


@pytest.mark.parametrize("name", ["Target", "targt", "drafts", "gpt2", "", "no/such/folder"])
def test_a_name_that_is_no_model_is_refused_without_a_network(name, monkeypatch):
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)  # nobody is asked
    with pytest.raises(ValueError, match=f"no model {name!r} in the zoo") as caught:
        zoo.load(name)
    near = {"Target": "target", "targt": "target", "drafts": "draft"}.get(name)
    assert near is None or f"the nearest is {near!r}; a model elsewhere" in str(caught.value)
    assert '"owner/name" at the hub' in str(caught.value)


def test_a_name_with_an_owner_is_asked_of_the_hub(monkeypatch):
    from transformers import AutoModelForCausalLM

    asked = []

    def answer(name, **options):
        asked.append(name)
        raise OSError("no such repository")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", answer)
    with pytest.raises(ValueError, match="could not load it: no such repository"):
        zoo.load("nobody/nothing-1.0")
    assert asked == ["nobody/nothing-1.0"]


def test_importing_the_zoo_loads_nothing_and_unknown_attributes_fail():
    code = "import sys; from efflib import zoo; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="no attribute 'zebra'"):
        zoo.zebra  # noqa: B018
    assert all(callable(getattr(zoo, n)) or n in ("BEGIN_ID", "PROMPTS") for n in zoo.__all__)


def test_no_name_is_named():
    with pytest.raises(ValueError, match="a model's name is text, got None"):
        zoo.load(None)
