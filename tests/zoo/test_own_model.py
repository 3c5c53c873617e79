"""A model of one's own: where it is found, what is refused, and that it is moved once."""

import copy
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from elsewhere import Elsewhere, There
from torch.utils._python_dispatch import _disable_current_modes

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from families import CASES, stored  # noqa: E402

from efflib import device, zoo
from efflib.lab import Lab
from efflib.models.hub import FAMILIES
from efflib.models.streamed import StreamedModel
from efflib.zoo import own_model
from efflib.zoo.checkpoints import FOLDER, TOKENIZER
from efflib.zoo.phenomena.any_model import measure
from efflib.zoo.phenomena.ways import ways


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (device.DEVICE, device.DTYPE, own_model.MODEL):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def written(case, folder):
    """A random model with the zoo's tokenizer, ids beyond its vocabulary folded back by `small`."""
    stored(case).save_pretrained(folder)
    shutil.copy(FOLDER / TOKENIZER, folder)
    return folder


@pytest.fixture
def small(monkeypatch):
    """Ids and pieces that fit the models of tests/models/families.py."""
    whole = own_model.token_ids
    monkeypatch.setattr(own_model, "token_ids", lambda folder, text: whole(folder, text) % 61)
    monkeypatch.setattr(own_model, "LENGTH", 12)


def test_without_a_name_it_is_the_zoo_s_model_in_the_hub_s_files():
    said = []
    own = own_model.open_model(say=said.append)
    assert said == ["target: llama, 0.011 GiB of weights, to cpu in torch.float32"]
    ours = zoo.load("target")
    with torch.no_grad():
        logits = ours(own.held_out[:1, :-1])[0]
    exact = torch.nn.functional.cross_entropy(logits, own.held_out[0, 1:]).item()
    one = copy.copy(own)
    one.held_out = own.held_out[:1]
    assert one.loss() == pytest.approx(exact, rel=1e-5)
    assert own.linears.keys() == {
        n for n, m in ours.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"
    }
    assert own.calibration.shape == (16, 128) and own.held_out.shape == (8, 129)
    assert type(own.model).__name__ == "LlamaForCausalLM"


@pytest.mark.parametrize("case", [c for c in CASES if "," not in c])
def test_one_s_own_functions_run_on_every_family(case, tmp_path, small):
    own = own_model.open_model(written(case, tmp_path))
    assert own.model_type in FAMILIES and len(own.linears) >= 2 * 4
    assert not any("lm_head" in n or n.endswith("mlp.gate") for n in own.linears)
    before, seen = own.loss(), {}
    same = own.changed(lambda name, w: seen.setdefault(name, w.clone()))
    assert seen.keys() == own.linears.keys() and own.loss(same) == before
    less = own.changed(lambda name, w: w.mul_(0.5))  # in place, of what it was given
    assert own.loss(less) != before and own.loss() == before
    if case != "mixtral":  # of its experts some see no token of a short text
        sums = own.collected(lambda x: x.double().square().sum(0))
        assert {n: len(s) for n, s in sums.items()} == {n: w.shape[1] for n, w in seen.items()}
        assert all(s.sum() > 0 for s in sums.values())


def test_a_text_of_one_s_own_and_the_environment_s_model(tmp_path, monkeypatch, small):
    text = tmp_path / "mine.txt"
    text.write_text("for x in range(10):\n    print(x)\n" * 9)
    folder = written("qwen2", tmp_path / "model")
    monkeypatch.setenv(own_model.MODEL, str(folder))
    own = own_model.open_model(text=text)
    ids = own_model.token_ids(folder, text.read_text())
    assert own.name == str(folder) and own.model_type == "qwen2"
    half = len(ids) - len(ids) // 2  # of an odd number the first half has one more
    assert torch.equal(own.calibration.flatten()[:20], ids[:20])
    assert torch.equal(own.held_out.flatten()[:20], ids[half : half + 20])
    text.write_text("short")
    with pytest.raises(ValueError, match="tokens is too short for a piece of 12"):
        own_model.open_model(text=text)


def test_what_is_not_there_is_refused_with_what_is_wanted(tmp_path):
    with pytest.raises(ValueError, match="'nowhere' is no folder here, none of target, draft"):
        own_model.open_model("nowhere")
    with pytest.raises(ValueError, match="is no folder with a config.json"):
        own_model.open_model(tmp_path)
    with pytest.raises(ValueError, match="nobody/nothing is not on this machine, and the Hub did"):
        own_model.open_model("nobody/nothing")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bloom"}))
    with pytest.raises(ValueError, match="model_type='bloom' is not known here; known are llama"):
        own_model.open_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    with pytest.raises(ValueError, match="load it as Gemma3ForCausalLM"):
        own_model.open_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match="has no tokenizer.json"):
        own_model.open_model(tmp_path)
    shutil.copy(FOLDER / TOKENIZER, tmp_path)
    with pytest.raises(ValueError, match="has no weights that could be read"):
        own_model.open_model(tmp_path)


def test_a_model_of_an_unknown_kind_at_the_hub_is_refused_before_its_weights_come(
    tmp_path, monkeypatch
):
    import huggingface_hub

    asked = []

    def download(name, allow_patterns):
        asked.append(allow_patterns)
        return tmp_path

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bloom"}))
    with pytest.raises(ValueError, match="model_type='bloom'"):
        own_model.folder_of("some/bloom")
    assert asked == [["config.json"]]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt"}))
    assert own_model.folder_of("some/opt") == tmp_path
    assert asked[1:] == [["config.json"], ["*.json", "*.safetensors"]]


def test_lab_use_says_what_it_has_and_does_nothing_in_the_sandbox(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lab = Lab("toy")
    own = lab.use("draft")
    out = capsys.readouterr().out
    assert "draft: llama" in out and f"{len(own.linears)} linears with" in out
    assert f"{own.loss():.3f} nats a token on 1024 held-out tokens" in out
    monkeypatch.setattr("efflib.lab.lab.in_sandbox", lambda: True)
    assert lab.use("nowhere") is None


def test_without_transformers_there_are_llamas(tmp_path, monkeypatch):
    """What students install has no transformers; the cell of a lab runs there too."""
    theirs = own_model.open_model("draft")
    folder = written("qwen2", tmp_path)
    for name in ("transformers", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, name, None)
    own = own_model.open_model("draft")
    assert type(own.model).__module__ == "efflib.models.llama"
    assert own.loss() == pytest.approx(theirs.loss(), rel=1e-5)
    assert own.linears.keys() == theirs.linears.keys()
    sums, exact = (o.collected(lambda x: x.double().square().sum(0)) for o in (own, theirs))
    assert all(torch.allclose(sums[n], exact[n], rtol=1e-4) for n in exact)
    with pytest.raises(ValueError, match="transformers is not installed: it opens"):
        own_model.open_model(folder)
    with pytest.raises(ValueError, match="transformers is not installed: it asks the Hub for a/b"):
        own_model.open_model("a/b")


# -- devices ------------------------------------------------------------------------------------


def test_the_environment_chooses_and_a_name_overrides(monkeypatch):
    cpu = torch.device("cpu")
    assert device.chosen_device() == cpu and device.chosen_dtype() is torch.float32
    monkeypatch.setenv(device.DEVICE, "meta")
    monkeypatch.setenv(device.DTYPE, "bfloat16")
    assert device.chosen_device().type == "meta" and device.chosen_device("cpu") == cpu
    assert device.chosen_dtype() is torch.bfloat16
    assert device.chosen_dtype("float16") is torch.float16
    assert zoo.load("draft").lm_head.weight.device == cpu, "a grade is computed where it always is"
    assert zoo.load("draft").lm_head.weight.dtype is torch.float32
    told = zoo.load("draft", device="meta", dtype="bfloat16").lm_head.weight
    assert told.is_meta and told.dtype is torch.bfloat16
    monkeypatch.setenv(device.DEVICE, "graphics")
    with pytest.raises(ValueError, match="EFFLIB_DEVICE=graphics is no device: cpu, cuda"):
        device.chosen_device()
    monkeypatch.setenv(device.DTYPE, "int3")
    with pytest.raises(ValueError, match="EFFLIB_DTYPE=int3 is none of float32, bfloat16"):
        device.chosen_dtype()


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_gpu_that_is_not_there_is_refused(gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert device.chosen_device("auto").type == ("cuda" if gpus else "cpu")
    monkeypatch.setenv(device.DEVICE, "cuda:2")
    with pytest.raises(ValueError, match=f"EFFLIB_DEVICE=cuda:2, but torch .* sees {gpus} GPUs"):
        device.chosen_device()
    if gpus:
        assert device.chosen_device("cuda:1") == torch.device("cuda", 1)


def test_the_fake_device_refuses_what_a_gpu_refuses():
    with Elsewhere() as elsewhere:
        x = torch.ones(3).to("meta")
        assert isinstance(x, There) and (x * 2).sum().item() == 6
        assert (elsewhere.arrived, elsewhere.left, elsewhere.read) == (1, 0, 1)
        with pytest.raises(RuntimeError, match="tensors on two devices"):
            x + torch.ones(3)
        assert torch.equal(x.cpu(), torch.ones(3)) and elsewhere.left == 1
        with torch.device("meta"):
            assert isinstance(torch.ones(2), There)


@pytest.mark.parametrize("case", ["llama", "gemma2", "gpt2"])
def test_a_model_is_moved_once_and_all_is_computed_there(case, tmp_path, monkeypatch, small):
    folder = written(case, tmp_path)
    exact = own_model.open_model(folder)
    expected = exact.loss(exact.changed(lambda name, w: (w * 2).round() / 2))
    monkeypatch.setenv(device.DEVICE, "meta")
    read = own_model._read

    def on_the_cpu(*args):  # transformers has a use of its own for "meta"
        with _disable_current_modes():
            return read(*args)

    monkeypatch.setattr(own_model, "_read", on_the_cpu)
    with Elsewhere() as elsewhere:
        own = own_model.open_model(folder)
        tensors = [*own.model.parameters(), *own.model.buffers()]
        assert all(isinstance(t.data, There) for t in tensors)
        moved = elsewhere.arrived
        assert moved <= len(tensors) + 2, "each tensor and both texts, once"
        rounded = own.changed(lambda name, w: (w * 2).round() / (torch.ones(()) * 2))
        assert own.loss(rounded) == pytest.approx(expected, rel=1e-6)
        own.collected(lambda x: torch.zeros(x.shape[1]) + x.square().sum(0))
        assert elsewhere.left == 0 and elsewhere.arrived == moved, "nothing was copied in between"
        assert elsewhere.read <= len(own.held_out) + 2
        with pytest.raises(RuntimeError, match="tensors on two devices"):
            own.model(exact.held_out)
    assert own.model.dtype is torch.float32


@pytest.mark.parametrize("story", ["quantization", "awq", "gptq", "pruning"])
def test_a_story_leaves_one_number_for_each_text(story, tmp_path):
    """Block by block: weights arrive once for each block, and only losses come back."""
    written("qwen2", tmp_path)
    ids = torch.randint(2, 61, (3, 13), generator=torch.Generator().manual_seed(5))
    told = ways(story, 16)
    here = measure(StreamedModel(tmp_path, torch.float64), told, ids[:, :12], ids)
    streamed = StreamedModel(tmp_path, torch.float64)
    with Elsewhere() as elsewhere:
        streamed.device = "meta"
        for module in streamed.model.modules():
            module._buffers |= {n: b.to("meta") for n, b in module._buffers.items()}
        there = measure(streamed, told, ids[:, :12], ids)
    assert there == pytest.approx(here, rel=1e-4)
    assert elsewhere.left == 0
