"""A model of one's own, block by block: the numbers are those of the techniques on all of it."""

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from families import VOCAB, stored  # noqa: E402

from efflib import zoo
from efflib.models.checkpoint import save_pretrained
from efflib.models.groups import with_linears
from efflib.models.streamed import StreamedModel
from efflib.quantization.awq_model import awq
from efflib.quantization.gptq import gptq_model
from efflib.quantization.ptq import quantize_model
from efflib.sparsity.magnitude import prune_magnitude
from efflib.sparsity.sparsegpt import prune_sparsegpt
from efflib.sparsity.wanda import prune_wanda
from efflib.zoo.checkpoints import FOLDER, TOKENIZER
from efflib.zoo.phenomena import on_a_model
from efflib.zoo.phenomena.any_model import measure
from efflib.zoo.phenomena.ways import ways

GROUP = 16
WHOLE = {
    "RTN 4 bits": lambda m, ids: quantize_model(m, 4, GROUP)[0],
    "RTN 3 bits": lambda m, ids: quantize_model(m, 3, GROUP)[0],
    "RTN 8 bits": lambda m, ids: quantize_model(m, 8, GROUP)[0],
    "AWQ 4 bits": lambda m, ids: awq(m, ids, 4, GROUP),
    "AWQ 3 bits": lambda m, ids: awq(m, ids, 3, GROUP),
    "GPTQ 4 bits": lambda m, ids: gptq_model(m, ids, 4, GROUP)[0],
    "GPTQ 3 bits": lambda m, ids: gptq_model(m, ids, 3, GROUP)[0],
    "magnitude 50 %": lambda m, ids: prune_magnitude(m, 0.5, "row"),
    "magnitude 2:4": lambda m, ids: prune_magnitude(m, (2, 4), "row"),
    "Wanda 50 %": lambda m, ids: prune_wanda(m, ids, 0.5),
    "Wanda 2:4": lambda m, ids: prune_wanda(m, ids, (2, 4)),
    "SparseGPT 50 %": lambda m, ids: prune_sparsegpt(m, ids, 0.5),
    "SparseGPT 2:4": lambda m, ids: prune_sparsegpt(m, ids, (2, 4)),
}


def texts(vocab=VOCAB):
    generator = torch.Generator().manual_seed(5)
    calibration = torch.randint(2, vocab, (4, 12), generator=generator)
    return calibration, torch.randint(2, vocab, (3, 13), generator=generator)


@torch.no_grad()
def loss(model, held_out):
    logits = model(held_out[:, :-1])
    logits = getattr(logits, "logits", logits).float()
    return F.cross_entropy(logits.flatten(0, 1), held_out[:, 1:].flatten()).item()


def written(case, folder):
    stored(case).save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


# the rest of families and stories: tests/oracles/test_any_model_oracles.py
@pytest.mark.parametrize(
    "case, story",
    [("gemma3_text", "awq"), ("phi3", "pruning"), ("gpt2", "gptq"), ("mixtral", "quantization")],
)
def test_each_way_gives_what_the_whole_model_gives(case, story, tmp_path):
    model = with_linears(written(case, tmp_path))
    calibration, held_out = texts()
    streamed = StreamedModel(tmp_path, torch.float64)
    found = measure(streamed, ways(story, GROUP), calibration, held_out)
    assert found.pop("float") == pytest.approx(loss(model, held_out), rel=1e-6)
    assert len(found) >= 3
    for name, value in found.items():
        assert value == pytest.approx(loss(WHOLE[name](model, calibration), held_out), rel=1e-4)
    assert len(set(found.values())) == len(found)
    assert all(p.device.type == "meta" for p in streamed.model.parameters())


def test_the_zoo_in_the_files_of_transformers_gives_the_zoo_s_numbers(tmp_path):
    """The draft model, by the command, from text to JSON: the losses are those of our model."""
    ours = zoo.load("draft")
    save_pretrained(ours, tmp_path)
    shutil.copy(FOLDER / TOKENIZER, tmp_path)
    text = tmp_path / "text.py"
    text.write_text("def f(x):\n    return [x, 1, None]\n\n\n" * 40)
    parser = argparse.ArgumentParser()
    on_a_model.add_options(parser)
    words = f"--model {tmp_path} --text {text} --dtype float32 --group 32 --length 48 --texts 1"
    options = parser.parse_args([*words.split(), "--results", str(tmp_path / "results")])
    report = json.loads(on_a_model.run("quantization", options).read_text())
    _, held_out = on_a_model.split(on_a_model.ids_of(tmp_path, options), options)
    assert held_out.shape == (1, 49)
    assert report["losses"].keys() == {"float", "RTN 8 bits", "RTN 4 bits", "RTN 3 bits"}
    assert report["losses"]["float"] == pytest.approx(loss(ours, held_out), rel=1e-5)
    three = quantize_model(ours, 3, 32)[0]
    assert report["losses"]["RTN 3 bits"] == pytest.approx(loss(three, held_out), rel=1e-4)
    shipped = hashlib.sha256((FOLDER / TOKENIZER).read_bytes()).hexdigest()
    assert report["model"]["sha256"]["tokenizer.json"] == shipped
    assert report["setting"]["group"] == 32 and report["versions"]["torch"] == torch.__version__
    assert [p.suffix for p in (tmp_path / "results").iterdir()] == [".json"]
    text.write_text("too short")
    with pytest.raises(ValueError, match="two texts of 48 need more"):
        on_a_model.run("quantization", options)


def test_a_run_that_was_cut_off_goes_on(tmp_path):
    written("qwen2", tmp_path)
    calibration, held_out = texts()
    told = ways("quantization", GROUP)
    whole = measure(StreamedModel(tmp_path, torch.float64), told, calibration, held_out)
    kept, lines = tmp_path / "state.pt", []
    assert measure(
        StreamedModel(tmp_path, torch.float64), told, calibration, held_out, kept, stop=1
    ) == {}  # fmt: skip
    ticks = []
    again = measure(
        StreamedModel(tmp_path, torch.float64),
        told,
        calibration,
        held_out,
        kept,
        lines.append,
        done=lambda count, name: ticks.append((count, name)),
    )
    assert ticks == [(5 + i, name) for i, name in enumerate(("float", *told))], "of 2 x 4 ways"
    assert again == whole and len(lines) == 1 and lines[0].startswith("block 2 of 2")
    other = measure(
        StreamedModel(tmp_path, torch.float64),
        told,
        calibration,
        held_out.flip(1),
        kept,
        lines.append,
    )
    assert len(lines) == 3 and other != whole, "another text is another run"


def test_files_in_parts_and_without_the_leading_name(tmp_path):
    written("opt", tmp_path)
    calibration, held_out = texts()
    whole = measure(StreamedModel(tmp_path, torch.float64), {}, calibration, held_out)
    file = tmp_path / "model.safetensors"
    state = {name.removeprefix("model."): w for name, w in load_file(file).items()}
    names = sorted(state)
    index = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(names)}
    for part in set(index.values()):
        save_file({n: state[n] for n in names if index[n] == part}, tmp_path / part)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    file.unlink()
    parts = measure(StreamedModel(tmp_path, torch.float64), {}, calibration, held_out)
    assert parts == whole


def test_what_is_not_gone_through_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no folder with a config.json"):
        StreamedModel(tmp_path, torch.float32)
    written("opt, norms behind", tmp_path / "opt")
    with pytest.raises(ValueError, match="is not gone through block by block"):
        StreamedModel(tmp_path / "opt", torch.float32)
    with pytest.raises(ValueError, match="no story 'sinks' of any model; there are quantization"):
        ways("sinks", 32)
    folder = tmp_path / "short"
    written("llama", folder)
    state = load_file(folder / "model.safetensors")
    del state["model.norm.weight"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ValueError, match="holds no tensor 'model.norm.weight'"):
        StreamedModel(folder, torch.float32)
