"""Memory of AWQ, GPTQ and Wanda on a model of 1.5 B random parameters, gone through block by block.

    python benchmarks/own_model.py                  two of its blocks, a few tokens
    python benchmarks/own_model.py --blocks 32      all of them

Writes a Llama of random weights in bfloat16 to a temporary folder (3 GB), then goes through it in
a process of its own, and prints the most memory that this process ever had in use (ru_maxrss, with
Python, torch and transformers in it) beside the weights' bytes. Memory is that of one block, the
embedding and the hidden states, so all blocks but the first add none; a test of the numbers
themselves is tests/zoo/test_any_model.py.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

CONFIG = dict(
    vocab_size=32000,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=4,
)
RESULTS = Path(__file__).parent / "results"
WAYS = ("AWQ 4 bits", "GPTQ 4 bits", "Wanda 50 %")


def write_model(folder: Path) -> int:
    """Random weights, a file for each block; returns the number of parameters."""
    from transformers import LlamaConfig

    from efflib.models.streamed import INDEX, parameters_without_memory

    config = LlamaConfig(**CONFIG, architectures=["LlamaForCausalLM"], dtype="bfloat16")
    config.save_pretrained(folder)
    with parameters_without_memory():
        from transformers import LlamaForCausalLM

        shapes = {n: p.shape for n, p in LlamaForCausalLM(config).named_parameters()}
    files: dict[str, list[str]] = {}
    for name in shapes:
        parts = name.split(".")
        files.setdefault(parts[2] if parts[1] == "layers" else "rest", []).append(name)
    generator, index = torch.Generator().manual_seed(0), {}
    for part, names in files.items():
        tensors = {}
        for name in names:
            w = torch.empty(shapes[name], dtype=torch.bfloat16)
            if w.ndim == 1:
                w.fill_(1)
            else:
                w.normal_(std=w.shape[1] ** -0.5, generator=generator)
            tensors[name] = w
        save_file(tensors, folder / f"{part}.safetensors")
        index |= dict.fromkeys(names, f"{part}.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    return sum(shape.numel() for shape in shapes.values())


def go_through(folder: str, way: str, blocks: int) -> None:
    """In a process of its own: prints what it took, as JSON."""
    from efflib.models.streamed import StreamedModel
    from efflib.zoo.phenomena.any_model import measure
    from efflib.zoo.phenomena.ways import by_awq, by_gptq, by_wanda

    changes = {"AWQ 4 bits": by_awq(4, 128), "GPTQ 4 bits": by_gptq(4, 128)}
    changes["Wanda 50 %"] = by_wanda(0.5)
    streamed = StreamedModel(folder, torch.bfloat16)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, CONFIG["vocab_size"], (2, 65), generator=generator)
    stop = None if blocks == CONFIG["num_hidden_layers"] else blocks
    losses = measure(streamed, {way: changes[way]}, ids[:, :64], ids, stop=stop)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"peak_bytes": peak, "before_bytes": before.ru_maxrss * 1024, "losses": losses}
    print(json.dumps(found | {"cpu_seconds": time.process_time() - start}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--go", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.go:
        return go_through(*options.go, options.blocks)
    with tempfile.TemporaryDirectory() as folder:
        parameters = write_model(Path(folder))
        weights = 2 * parameters
        print(f"{parameters / 1e9:.2f} B parameters, {weights / 1e9:.2f} GB in bfloat16")
        rows = {}
        for way in options.ways:
            command = [sys.executable, __file__, "--blocks", str(options.blocks)]
            done = subprocess.run(
                [*command, "--go", folder, way], capture_output=True, text=True, check=True
            )
            rows[way] = found = json.loads(done.stdout.splitlines()[-1])
            share = found["peak_bytes"] / weights
            took = f"{found['cpu_seconds']:.0f} s of processor for {options.blocks} blocks"
            print(f"  {way:12s} {found['peak_bytes'] / 1e9:.2f} GB, {share:.2f} x weights, {took}")
    RESULTS.mkdir(exist_ok=True)
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    result = {"weights_bytes": weights, "blocks": options.blocks, "ways": rows}
    text = json.dumps(result | {"config": CONFIG, "versions": versions}, indent=2)
    (RESULTS / "own_model.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
