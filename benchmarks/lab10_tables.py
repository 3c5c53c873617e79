"""Numbers and figures of the chapter on LoRA and QLoRA, on the zoo's model.

    python benchmarks/lab10_tables.py            writes course/chapters/_generated/lab10_*.md
                                                 and course/figures/lab10/*.svg, prints the tables
    python benchmarks/lab10_tables.py memory     only what needs no training

The text is the story's (`efflib.zoo.phenomena.lora`): C++ headers that torch carries, Python of the
corpus.  STEPS steps, means over SEEDS with the range.  About three minutes of one core.
"""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

from efflib import zoo
from efflib.finetuning.lora import LoRALinear, add_lora, base_weight, merge_lora, update
from efflib.finetuning.memory import GB, LLAMA, METHODS, finetuning_bytes, paged_out
from efflib.finetuning.qlora import add_qlora
from efflib.finetuning.training import finetune
from efflib.plots import finetuning as plots
from efflib.plots import placements, style
from efflib.quantization.nf4 import NF4Linear, dequantize_nf4, nf4_bits, nf4_codebook, quantize_nf4
from efflib.sparsity.wanda import prune_wanda
from efflib.zoo.evaluation import held_out_segments, token_losses
from efflib.zoo.phenomena.lora import TARGETS, headers, pieces
from efflib.zoo.tokenizer import text_ids

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab10"
SEEDS, STEPS, BATCH, LENGTH = 3, 30, 4, 64
RATES = {"rank 1": 1e-2, "rank 4": 1e-2, "rank 16": 5e-3, "all weights": 1e-3}
CARD = 48 * GB


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(figure, name: str, alt: str) -> None:
    style.save(figure, FIGURES / f"{name}.svg", alt)


def perplexity(model: nn.Module, text: torch.Tensor) -> float:
    return token_losses(model, text, context=128, stride=128).double().mean().exp().item()


def train(model: nn.Module, lr: float, seed: int, kind: str = "C++") -> nn.Module:
    source = headers("training") if kind == "C++" else text_ids("code", held_out=False)
    batches = pieces(source, STEPS * BATCH, LENGTH, seed).split(BATCH)
    return finetune(model, batches, lr, seed)[0]


def share(model: nn.Module, base: nn.Module) -> float:
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return 100 * trained / sum(p.numel() for p in base.parameters())


def memory() -> None:
    """Bytes of four Llamas, and the opening picture."""
    lines = ["| | | weights | gradients | optimizer | activations | all, GB | out of 48 GB |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for size, shape in LLAMA.items():
        for method in METHODS:
            held = finetuning_bytes(shape, method)
            try:
                paged = f"{paged_out(held, CARD) / GB:.1f} paged"
            except ValueError:
                paged = "does not fit"
            cells = " | ".join(f"{value / GB:.1f}" for value in (*held, held.total))
            fits = "fits" if held.total <= CARD else paged
            lines.append(f"| {size} | {method} | {cells} | {fits} |")
    write("lab10_memory", "\n".join(lines) + "\n")
    names = {"full": "all weights", "lora": "LoRA", "qlora": "QLoRA"}
    sums = {names[m]: finetuning_bytes(LLAMA["65B"], m).total / GB for m in METHODS}
    alt = "Bars: " + ", ".join(f"{name} {value:.0f} GB" for name, value in sums.items())
    head = "Training a model of 65 billion parameters, in three ways"
    save(plots.opening(sums, CARD / GB, head), "opening", f"{alt}; a line marks a card of 48 GB.")


def formats() -> None:
    """Errors of 4 bits, the bits themselves, and how often the codes are used."""
    torch.manual_seed(0)
    normal = torch.randn(4096, 64)
    low, high = normal.aminmax(dim=1, keepdim=True)
    low, step = low.half().float(), ((high - low) / 15).half().float()  # 32 bits for 64 weights
    codes = ((normal - low) / step).round().clamp(0, 15)
    even = normal.abs().amax(1, keepdim=True) / 7
    ways = {
        "NF4": dequantize_nf4(quantize_nf4(normal, double=False)),
        "NF4, double quantization": dequantize_nf4(quantize_nf4(normal)),
        "16 equal steps from least to largest": codes * step + low,
        "15 equal steps around 0": (normal / even).round() * even,
    }
    size = normal.square().mean().sqrt()
    lines = ["| 4 bits, blocks of 64, normal weights | error, of the weights' size |", "|---|---|"]
    lines += [
        f"| {way} | {((back - normal).square().mean().sqrt() / size):.4f} |"
        for way, back in ways.items()
    ]
    bits = [nf4_bits((4096, 4096), double) / 4096**2 for double in (False, True)]
    lines.append(f"\nBits a weight, 4096 x 4096: {bits[0]:.3f}, doubly quantized {bits[1]:.3f}.")
    write("lab10_formats", "\n".join(lines) + "\n")
    packed = quantize_nf4(normal, double=False).packed
    nf4 = torch.cat([packed >> 4, packed & 0xF]).long()
    books = {"NF4": (nf4_codebook(), nf4), "equal steps": (torch.linspace(-1, 1, 16), codes.long())}
    used = {
        name: (levels, torch.bincount(c.flatten(), minlength=16) / c.numel())
        for name, (levels, c) in books.items()
    }
    shares = {name: share.clamp(min=1e-12) for name, (_, share) in used.items()}
    bits = {name: -(share * share.log2()).sum().item() for name, share in shares.items()}
    head = f"NF4's codes carry {bits['NF4']:.2f} bits, those of the grid {bits['equal steps']:.2f}"
    alt = "Stems at 16 levels, as high as the share of normal weights: more even for NF4."
    save(plots.levels_and_use(used, head), "levels", alt)


def learning(base: nn.Module, cpp: torch.Tensor, python: torch.Tensor) -> dict[str, nn.Module]:
    """The table of methods, with its figure; the models of seed 0."""
    frozen = perplexity(base, cpp), perplexity(base, python)
    lines = ["| trained | share | C++ | Python |", "|---|---|---|---|"]
    lines.append(f"| nothing | 0 | {frozen[0]:.2f} | {frozen[1]:.2f} |")
    points, models = {}, {}
    ways = [*RATES, "rank 4, NF4", "control: rank 4 on Python"]
    for way in ways:
        new, old = [], []
        for seed in range(SEEDS):
            r = int(way.split("rank ")[1][:2].strip(", ")) if "rank" in way else 0
            add = add_qlora if "NF4" in way else add_lora
            start = add(base, r, 2 * r, TARGETS, seed=seed) if r else base
            rate = RATES.get(way, RATES["rank 4"])
            trained = train(start, rate, seed, "Python" if "control" in way else "C++")
            models.setdefault(way, trained)
            new.append(perplexity(trained, cpp))
            old.append(perplexity(trained, python))
        shown = " | ".join(placements.plus_minus(v, 4) for v in (new, old))
        lines.append(f"| {way} | {share(start, base):.2f} % | {shown} |")
        if way in RATES:
            points[way] = (share(start, base), new, old)
    write("lab10_learning", "\n".join(lines) + "\n")
    gained = [frozen[0] - placements.mean(points[way][1]) for way in ("rank 4", "all weights")]
    head = f"Rank 4 gets {gained[0] / gained[1]:.0%} of what all weights get"
    alt = "Left, perplexity of C++ falls with the share that is trained; right, of Python rises."
    save(plots.learned_and_forgotten(points, frozen, head), "learning", alt)
    return models


def ranks(base: nn.Module, full: nn.Module, cpp: torch.Tensor) -> None:
    """The full fine-tune's change, cut to rank r."""
    lines = ["| rank kept | share of the change's squares | of a random one | C++ |"]
    lines.append("|---|---|---|---|")
    names = [n for n, m in base.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
    deltas = {n: full.get_submodule(n).weight - base.get_submodule(n).weight for n in names}
    parts = {n: torch.linalg.svd(d.detach(), full_matrices=False) for n, d in deltas.items()}
    chance = torch.linalg.svdvals(torch.randn(192, 512)).square()
    for r in (1, 4, 16, 64, 192):
        kept = [(s[:r].square().sum() / s.square().sum()).item() for _, s, _ in parts.values()]
        cut = copy.deepcopy(full)  # its norms and embedding stay
        for name, (u, s, v) in parts.items():
            linear = nn.Linear(*reversed(deltas[name].shape), bias=False)
            linear.weight.data = base.get_submodule(name).weight.data + u[:, :r] * s[:r] @ v[:r]
            cut.set_submodule(name, linear)
        lines.append(
            f"| {r} | {placements.plus_minus(kept, 2)} | {(chance[:r].sum() / chance.sum()):.2f} | "
            f"{perplexity(cut, cpp):.2f} |"
        )
    write("lab10_ranks", "\n".join(lines) + "\n")


def merging(models: dict[str, nn.Module], base: nn.Module, cpp: torch.Tensor) -> None:
    """What arrives of an update whose base lies in NF4, merged onto it and onto the weights of
    before it was rounded."""
    qlora = models["rank 4, NF4"]
    again, original = merge_lora(qlora), copy.deepcopy(base)
    adapted = {n: m for n, m in qlora.named_modules() if isinstance(m, LoRALinear)}
    for name, layer in adapted.items():
        original.get_submodule(name).weight.data += update(layer)
    lines = ["| | C++ | of the update arrives |", "|---|---|---|"]
    lines.append(f"| beside NF4 | {perplexity(qlora, cpp):.2f} | |")
    lines.append(f"| merged into float32 | {perplexity(again, cpp):.2f} | |")
    for head, model in (("merged", again), ("merged onto the original weights", original)):
        arrived = asked = 0.0
        for name, layer in adapted.items():
            before = base_weight(layer.base) if model is again else base.get_submodule(name).weight
            stored = NF4Linear(model.get_submodule(name))
            arrived += ((stored.weight_hat() - before).double() * update(layer)).sum().item()
            asked += update(layer).square().sum().item()
            model.set_submodule(name, stored)
        figure = f"{perplexity(model, cpp):.2f} | {arrived / asked:.0%}"
        lines.append(f"| {head}, then rounded to NF4 | {figure} |")
    write("lab10_merging", "\n".join(lines) + "\n")


def repair(base: nn.Module, python: torch.Tensor) -> None:
    """LoRA beside a model that was pruned as in lab 4."""
    texts = pieces(text_ids("code", held_out=False), 16, 128, seed=7)
    lines = ["| Wanda | pruned | with LoRA, rank 4 |", "|---|---|---|"]
    for name, pattern in (("50 %", 0.5), ("4:8", (4, 8)), ("2:4", (2, 4))):
        pruned = prune_wanda(base, texts, pattern)
        after = [
            perplexity(train(add_lora(pruned, 4, 8, TARGETS, seed=s), 3e-3, s, "Python"), python)
            for s in range(SEEDS)
        ]
        lines.append(
            f"| {name} | {perplexity(pruned, python):.2f} | {placements.plus_minus(after)} |"
        )
    write("lab10_repair", "\n".join(lines) + f"\nDense: {perplexity(base, python):.2f}.\n")


def main() -> None:
    memory()
    formats()
    if sys.argv[1:] == ["memory"]:
        return
    base = zoo.load("target")
    cpp, python = pieces(headers("held out"), 16, 128, seed=0), held_out_segments("code", 2048)
    models = learning(base, cpp, python)
    ranks(base, models["all weights"], cpp)
    merging(models, base, cpp)
    repair(base, python)


if __name__ == "__main__":
    main()
