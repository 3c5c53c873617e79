"""Train what the zoo ships.

    python -m efflib.zoo.train tokenizer
    python -m efflib.zoo.train target --workers 2    # resumes where a killed run stopped
    python -m efflib.zoo.train draft --device cuda
    python -m efflib.zoo.train target --export       # put the unfinished run's weights in place
    python -m efflib.zoo.train target --into build   # to judge them before they replace the old

A run keeps its state in ``build/zoo/<name>.pt``. When it ends, the checkpoint, its training log
and its model card are written under ``efflib/zoo/checkpoints/<name>/``, or where `--into` says.
Until its learning rates decay, a run may be resumed with another number of steps and ends as if
it had been started with it.

On a CPU, workers with one thread each share the cores with other programs better than threads
do: they wait for one another once in a step, not in every matrix product.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from efflib.models.checkpoint import WEIGHTS_FILE
from efflib.models.config import LlamaConfig, MixtureConfig
from efflib.models.mixture import Mixture
from efflib.moe.balance import load as load_of
from efflib.moe.router import route
from efflib.zoo import corpus, packages
from efflib.zoo.cards import export
from efflib.zoo.checkpoints import FOLDER, load, sha256
from efflib.zoo.distillation import distillation_loss, written
from efflib.zoo.evaluation import SEGMENTS, held_out_segments, perplexity
from efflib.zoo.probe import begin_attention
from efflib.zoo.tokenizer import BEGIN_ID, VOCAB_SIZE, text_ids, train_and_save
from efflib.zoo.training import Recipe, Run, causal_attention, loss_function

CODE_REPEATS, PROSE_REPEATS = 2, 4  # of the standard library's text in an epoch: 20 and 4 %
LOG_STEPS = 250
LOG_TOKENS = 16384  # held-out tokens for the perplexities in the log
SAVE_SECONDS = 60.0
PRINT_STEPS = 20
PATIENCE = timedelta(days=7)  # with the other workers: one that is paused or starved is not lost


def llama(width: int, layers: int, intermediate: int, act: str = "silu") -> LlamaConfig:
    """A small Llama over the zoo's vocabulary with heads of 32, one key head per query head."""
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=width,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=BEGIN_ID,
        hidden_act=act,
    )


SMALL = llama(width=128, layers=4, intermediate=320)  # the three of lab07's comparison
# 2 of 8 experts of 160 are as much work for a token as SMALL's 320
MIXTURE = MixtureConfig(**asdict(replace(SMALL, intermediate_size=160)))
BALANCED = replace(MIXTURE, router_aux_loss_coef=0.02)  # Mixtral's own
RELU = llama(width=128, layers=4, intermediate=320, act="relu")  # for DejaVu: most neurons are 0
RECIPES = {
    "target": Recipe(llama(192, 6, 512), steps=9600, batch=16, context=512),  # 79 M tokens
    "draft": Recipe(
        llama(width=128, layers=2, intermediate=320),
        steps=2200,
        batch=16,
        context=512,
        teacher="target",
        written=1_000_000,
        repeats=2,
    ),
    "learnable_sink": Recipe(SMALL, steps=2500, decay=0.25),
    "zero_sink": Recipe(SMALL, steps=2500, decay=0.25, begin=False, zero_sink=True),
    "vanilla": Recipe(SMALL, steps=2500, decay=0.25, begin=False),
    "moe": Recipe(BALANCED, steps=2500, decay=0.25),  # beside learnable_sink: equal active size
    "moe_unbalanced": Recipe(MIXTURE, steps=2500, decay=0.25),
    "relu": Recipe(RELU, steps=2500, decay=0.25),
}


@cache
def training_text() -> Tensor:
    """The ids of every training document: standard library, its prose, packages. [N]"""
    code, prose = text_ids("code", False), text_ids("prose", False)
    return torch.cat(CODE_REPEATS * [code] + PROSE_REPEATS * [prose] + [packages.text_ids()])


def text_of(recipe: Recipe, folder: Path) -> Tensor:
    """What a recipe trains on: the training text, and what its teacher writes. [N]

    The latter is kept in `folder` under the hash of the teacher's weights, for it takes a while.
    """
    text = training_text()
    if not recipe.written:
        return text
    weights = sha256(FOLDER / recipe.teacher / WEIGHTS_FILE)
    file = folder / f"{recipe.teacher}-{weights[:12]}-{recipe.seed}-{recipe.written}.pt"
    if not file.exists():
        torch.save(written(load(recipe.teacher), text, recipe.written, recipe.seed), file)
    return torch.cat([text] + recipe.repeats * [torch.load(file, weights_only=True)])


def loss_of(run: Run, bfloat16: bool = True) -> Callable[[Tensor], Tensor]:
    """What the run makes small: cross-entropy, or the divergence from its teacher."""
    if run.recipe.teacher is None:
        return loss_function(run.model, run.device, bfloat16)
    teacher = load(run.recipe.teacher).to(run.device)
    teacher.set_attention(causal_attention(run.recipe.context, run.device))
    return distillation_loss(run.model, teacher, run.device)


def measure(run: Run) -> dict[str, float]:
    """Held-out perplexities on part of the text, and the largest attention to the first key."""
    run.model.eval()
    context = run.recipe.context
    ids = held_out_segments("code", SEGMENTS * context).to(run.device)
    if run.recipe.begin:
        ids[:, 0] = BEGIN_ID
    figures = {
        f"{split}_perplexity": round(perplexity(run.model, split, LOG_TOKENS, context, context), 3)
        for split in corpus.SPLITS
    }
    shares = begin_attention(run.model, ids, run.recipe.zero_sink)  # [L, H]
    figures["sink"] = round(shares.max().item(), 3)
    if isinstance(run.model, Mixture):
        figures["load"] = loads(run.model, ids)
    run.model.train()
    return figures


@torch.no_grad()
def loads(model: Mixture, ids: Tensor) -> list[list[float]]:
    """The share of the assignments that each expert of each layer gets, largest first. [L][E]"""
    model(ids)
    shares = []
    for m in model.mixtures():
        share = load_of(route(m.logits, m.k).experts, m.gate.out_features)
        shares.append([round(s, 3) for s in share.sort(descending=True).values.tolist()])
    return shares


def train(run: Run, compiled: bool, bfloat16: bool = True) -> None:
    """Run to the recipe's last step, saving and logging on the way (the first worker does)."""
    first_worker = not dist.is_initialized() or dist.get_rank() == 0
    loss = loss_of(run, bfloat16)
    loss = torch.compile(loss) if compiled else loss
    step_tokens = run.recipe.batch * run.recipe.context
    first, start, saved, losses = run.step, time.monotonic(), 0.0, []
    while run.step < run.recipe.steps:
        losses.append(run.update(loss))
        if not first_worker:
            continue
        elapsed = time.monotonic() - start
        if run.step % LOG_STEPS == 0 or run.step == run.recipe.steps:
            mean = round(sum(losses) / len(losses), 4)
            tokens = run.step * step_tokens
            run.log.append({"step": run.step, "tokens": tokens, "loss": mean} | measure(run))
            losses = []
            print(run.log[-1], flush=True)
        if run.step % PRINT_STEPS == 0:
            pace = elapsed / (run.step - first)
            print(
                f"step {run.step}/{run.recipe.steps}  loss {losses[-1] if losses else mean:.3f}  "
                f"{step_tokens / pace:.0f} tokens/s  "
                f"{pace * (run.recipe.steps - run.step) / 60:.1f} min left",
                flush=True,
            )
        if elapsed - saved > SAVE_SECONDS or run.step == run.recipe.steps:
            saved = elapsed
            run.save()


def work(rank: int, options: argparse.Namespace, text: Tensor) -> None:
    """One worker: all hold the same weights, each computes the gradient of its samples."""
    torch.set_num_threads(options.threads)
    if options.workers > 1:
        store = f"file://{options.state.absolute()}/{options.what}.rendezvous"
        dist.init_process_group(
            "gloo", store, rank=rank, world_size=options.workers, timeout=PATIENCE
        )
    run = Run(options.recipe, text, state_file(options), options.device)
    train(run, compiled=not options.eager, bfloat16=not options.float32)
    if dist.is_initialized():
        dist.destroy_process_group()


def state_file(options: argparse.Namespace) -> Path:
    return options.state / f"{options.what}.pt"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m efflib.zoo.train", description=__doc__)
    parser.add_argument("what", choices=["tokenizer", *RECIPES])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--workers", type=int, default=1, help="processes that share a batch")
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument(
        "--float32", action="store_true", help="a CPU without AVX-512 multiplies bfloat16 slowly"
    )
    parser.add_argument("--state", type=Path, default=Path("build/zoo"), help="folder of the state")
    parser.add_argument("--export", action="store_true", help="only write the checkpoint")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of the checkpoint")
    options = parser.parse_args()
    if options.what == "tokenizer":
        train_and_save()
        return
    options.recipe = RECIPES[options.what]
    if options.steps is not None:
        options.recipe = replace(options.recipe, steps=options.steps)
    options.state.mkdir(parents=True, exist_ok=True)
    text = text_of(options.recipe, options.state)
    if not options.export:
        (options.state / f"{options.what}.rendezvous").unlink(missing_ok=True)
        torch.multiprocessing.spawn(work, (options, text), nprocs=options.workers)
    run = Run(options.recipe, text, state_file(options))
    command = f"python -m efflib.zoo.train {options.what}"
    command += f" --steps {options.recipe.steps} --workers {options.workers}"
    command += " --float32" if options.float32 else ""
    command += " --eager" if options.eager else ""
    export(run, options.what, command, {"code": CODE_REPEATS, "prose": PROSE_REPEATS}, options.into)


if __name__ == "__main__":
    main()
