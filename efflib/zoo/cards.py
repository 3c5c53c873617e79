"""Write a trained model's checkpoint, training log and model card.

Every number of a card is measured here, on the weights as they are stored (fp16), or comes from
the training log; none is typed by hand.
"""

import json
import math
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from efflib.models.checkpoint import WEIGHTS_FILE, save_pretrained
from efflib.models.llama import Llama
from efflib.models.mixture import Mixture
from efflib.zoo import checkpoints, corpus, packages
from efflib.zoo.evaluation import (
    SAMPLE_TOKENS,
    SEGMENTS,
    count_bytes,
    held_out_segments,
    perplexity,
    token_losses,
)
from efflib.zoo.probe import begin_attention
from efflib.zoo.tokenizer import BEGIN_ID
from efflib.zoo.training import Recipe, Run

STRIDE = 128
PACKAGES = ("torch", "tokenizers", "safetensors")


def flops_per_token(model: Llama) -> int:
    """Multiply-adds of a token's matrix products, twice, the head included, attention not.

    Attention adds 4 S H d for each layer, for S keys.  Of a mixture's experts a token has k.
    """
    matrices = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    for mixture in model.mixtures() if isinstance(model, Mixture) else []:
        expert = sum(p.numel() for p in mixture.experts[0].parameters())
        matrices -= (len(mixture.experts) - mixture.k) * expert
    return 2 * matrices


def evaluate(model: Llama, recipe: Recipe) -> dict:
    """The figures of the card, on all of the held-out text, with the context of the training.

    The recipe's begin and zero_sink decide what the first key of an attention map is.
    """
    context = recipe.context
    figures = {"context": context, "stride": STRIDE, "sample_tokens": SAMPLE_TOKENS}
    for split in corpus.SPLITS:
        text = held_out_segments(split)
        losses = token_losses(model, text, context, STRIDE).double()
        figures[split] = {
            "held_out_tokens": text.numel(),
            "perplexity": round(losses.mean().exp().item(), 4),
            "bits_per_byte": round(losses.sum().item() / math.log(2) / count_bytes(text), 4),
            "sample_perplexity": round(perplexity(model, split, SAMPLE_TOKENS, context, STRIDE), 4),
        }
    ids = held_out_segments("code", SEGMENTS * context)
    if recipe.begin:
        ids[:, 0] = BEGIN_ID
    sinks = begin_attention(model, ids, recipe.zero_sink)  # [L, H]
    return figures | {"begin_attention": [[round(p, 3) for p in row] for row in sinks.tolist()]}


def export(run: Run, name: str, command: str, repeats: dict[str, int], folder: Path) -> None:
    """Write folder/name/{config.json, model.safetensors, training.json, card.md}.

    repeats: how often each split stands in the training text.
    """
    target = folder / name
    save_pretrained(run.model, target, torch.float16)
    if run.recipe.zero_sink:
        checkpoints.mark_zero_sink(target)
    stored = checkpoints.load_unchecked(target)
    teacher = run.recipe.teacher
    batch_tokens = run.recipe.batch * run.recipe.context
    report = {
        "name": name,
        "command": command,
        "recipe": asdict(run.recipe),
        "finished": run.step == run.recipe.steps,
        "step": run.step,
        "tokens": run.step * batch_tokens,
        "epochs": round(run.step * batch_tokens / len(run.text), 2),
        "text_tokens": len(run.text),
        "repeats": repeats,
        "parameters": sum(p.numel() for p in stored.parameters()),
        "flops_per_token": flops_per_token(stored),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "packages": packages.provenance(),
        "teacher_sha256": teacher
        and checkpoints.sha256(checkpoints.FOLDER / teacher / WEIGHTS_FILE),
        "digests": {
            f"{s} {kind}": corpus.digest(s, kind == "held-out")
            for s in corpus.SPLITS
            for kind in ("training", "held-out")
        },
        **evaluate(stored, run.recipe),
        "log": run.log,
    }
    text = json.dumps(report, indent=1) + "\n"
    (target / "training.json").write_text(text, encoding="utf-8")
    size = (target / WEIGHTS_FILE).stat().st_size
    (target / "card.md").write_text(card(report, size), encoding="utf-8")
    checkpoints.record(folder)


CARD = """# {name}

A {family} of {parameters:,} parameters ({size:.1f} MB in fp16), trained from nothing on the text of
a Python installation. It is made for demonstrations: it knows the look of Python source and of
the language reference, and nothing else.

| | code | prose |
|---|---|---|
| held-out perplexity | {code[perplexity]:.2f} | {prose[perplexity]:.2f} |
| on a sample | {code[sample_perplexity]:.2f} | {prose[sample_perplexity]:.2f} |
| bits per byte | {code[bits_per_byte]:.3f} | {prose[bits_per_byte]:.3f} |
| held-out tokens | {code[held_out_tokens]:,} | {prose[held_out_tokens]:,} |

- Perplexities: `zoo.perplexity` with context {context} and stride {stride}, on all of the
  held-out text, and on the {sample_tokens:,} tokens of `tokens={sample_tokens}`.
- Shape: {layers} layers, width {width}, {heads} heads of {head_dim}, feed-forward {inner},
  vocabulary {vocab}, tied embeddings, trained on windows of {context} tokens.
- Compute: {flops:,} FLOPs for each token in matrix products, the head included.
- Data: the standard library's source ({code_repeats} times) and `pydoc_data.topics`
  ({prose_repeats} times), without the held-out names of `efflib/zoo/corpus.py`, and {files:,} files
  of the packages in `efflib/zoo/packages.py`; {text_tokens:,} tokens, {epochs} passes.
- Training: {steps:,} steps of {batch} samples, {tokens:,} tokens{unfinished}; Muon at
  {matrix_lr} for the layers' matrices, AdamW at {vector_lr} for the rest; warm-up, constant,
  linear decay; seed {seed}.{teacher}{balance}
- {begin} The head that attends to the first key most gives it
  {sink:.2f} of its attention on held-out code (layer {sink_layer}, head {sink_head}, counted
  from 0).
- Versions: {versions}.
- Command: `{command}` (resumes after a kill).

The text differs slightly between Python versions; the figures are those of Python {python}, and
`training.json` holds the digests of its text, the training log and all settings.
"""


BEGIN_TEXT = {
    (True, False): "Every sample starts with `<s>`.",
    (False, False): "No sample starts with `<s>`, which this model has never seen.",
    (False, True): "No sample starts with `<s>`; the softmax has an extra zero, here key 0.",
    (True, True): "Every sample starts with `<s>`; the softmax has an extra zero, here key 0.",
}
EXPERTS_TEXT = "{num_local_experts} experts of {intermediate_size}, {num_experts_per_tok} a token"
BALANCE_TEXT = """
- Balancing loss: {router_aux_loss_coef} of its mean over the layers, beside the cross-entropy."""
COPIED = "name parameters context stride command tokens text_tokens epochs sample_tokens".split()


TEACHER_TEXT = """
- Distilled from `{teacher}` (weights {teacher_sha256:.12}): what became small is the divergence
  of its predictions, on that text and, {repeats} times, on {written:,} tokens that it wrote."""


def card(report: dict, size: int) -> str:
    """The model card, in Markdown, from a training report and the weights' size in bytes."""
    recipe, model = report["recipe"], report["recipe"]["model"]
    sinks = torch.tensor(report["begin_attention"])  # [L, H]
    layer, head = divmod(int(sinks.argmax()), sinks.shape[1])
    return CARD.format(
        **{k: report[k] for k in COPIED},
        size=size / 1e6,
        code=report["code"],
        prose=report["prose"],
        layers=model["num_hidden_layers"],
        width=model["hidden_size"],
        heads=model["num_attention_heads"],
        head_dim=model["head_dim"],
        family="Mixtral" if "num_local_experts" in model else "Llama",
        inner=EXPERTS_TEXT.format(**model)
        if "num_local_experts" in model
        else model["intermediate_size"],
        balance=BALANCE_TEXT.format(**model) if model.get("router_aux_loss_coef") else "",
        vocab=model["vocab_size"],
        flops=report["flops_per_token"],
        steps=report["step"],
        code_repeats=report["repeats"]["code"],
        prose_repeats=report["repeats"]["prose"],
        files=report["packages"]["files"],
        begin=BEGIN_TEXT[recipe["begin"], recipe["zero_sink"]],
        unfinished="" if report["finished"] else f", unfinished (of {recipe['steps']:,} steps)",
        **{k: recipe[k] for k in ("batch", "matrix_lr", "vector_lr", "seed")},
        teacher=TEACHER_TEXT.format(**report | recipe) if recipe.get("teacher") else "",
        sink=sinks.max().item(),
        sink_layer=layer,
        sink_head=head,
        versions=", ".join(f"{k} {v}" for k, v in report["versions"].items()),
        python=report["versions"]["python"],
    )
