"""All that a GPU can show of this course, in one command: kernels, their times, models, stories.

    make gpu GPU_PYTHON=python3        a Python whose torch has CUDA; 15 minutes, nothing downloaded
    python benchmarks/gpu.py --only stories
    python benchmarks/gpu.py --stories-on-cpu       what of it needs no GPU

    kernels      every kernel compiled and compared with float64 (tests/kernels)
    times        benchmarks/kernels.py, with its own results file
    models       the zoo's models by `lab.use` on the GPU: the loss is that of the CPU
    stories      the stories of any model, block by block, on the zoo's target in bfloat16

Writes benchmarks/results/gpu-<GPU>.json, with versions and how each part ended, and a file for each
story.  Ends with 0 if all parts did what they should, with 1 if one did not, and with 2, having
written nothing, if torch sees no GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
STORIES = ("quantization", "awq", "gptq", "pruning")
CLOSE = 1e-3  # relative: float32 sums in another order, and products in TF32 where that is on
KERNEL_TESTS = ("tests/kernels/test_on_device.py", "tests/kernels/test_w4a16_packed.py")
Part = Callable[[], dict]


def environment() -> dict[str, str]:
    """Of a child: it compiles kernels, and imports what stands here."""
    found = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return found | {"PYTHONPATH": str(ROOT), "EFFLIB_TEST_DEVICE": "cuda"}


def child(*words: str) -> dict:
    """Run python with these words; the last lines that it said, and whether it ended with 0."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout, flush=True)
    last = done.stdout.strip().splitlines()[-3:]
    return {"command": " ".join(["python", *words]), "said": last, "right": done.returncode == 0}


def kernels() -> dict:
    return child("-m", "pytest", "-q", *KERNEL_TESTS)


def times() -> dict:
    return child("benchmarks/kernels.py")


def models() -> dict:
    """Loss of the zoo's models on both devices."""
    from efflib.device import DEVICE
    from efflib.zoo.own_model import SHIPPED, open_model

    losses = {}
    for name in SHIPPED:
        for device in ("cpu", "cuda"):
            os.environ[DEVICE] = device
            own = open_model(name, say=print)
            same = own.changed(lambda name, w: w)
            losses[f"{name} on {device}"] = own.loss(same)
    return {"losses": losses, "right": agree(losses)}


def agree(losses: dict[str, float]) -> bool:
    """Whether "... on cuda" is "... on cpu", for all."""
    pairs = [(loss, losses[k.replace("cuda", "cpu")]) for k, loss in losses.items() if "cuda" in k]
    return bool(pairs) and all(abs(a - b) <= CLOSE * abs(b) for a, b in pairs)


def stories(device: str = "cuda", results: Path = RESULTS, told: tuple[str, ...] = STORIES) -> dict:
    """The command that a student gives, on the zoo's target in the Hub's files and on its text."""
    from efflib.zoo import corpus
    from efflib.zoo.own_model import write_shipped

    said = []
    with tempfile.TemporaryDirectory() as empty:
        folder = Path(empty) / "target"
        folder.mkdir()
        write_shipped("target", folder)
        text = Path(empty) / "course-code.txt"
        documents = corpus.documents("code", held_out=True).values()
        text.write_text("\n\n".join(documents), encoding="utf-8")
        words = ["-m", "efflib.zoo.phenomena", *told, "--model", str(folder), "--text", str(text)]
        words += ["--device", device, "--group", "64", "--length", "256", "--texts", "8"]
        found = child(*words, "--results", str(results))
        said = [line for line in found["said"] if line.startswith("written")]
    return found | {"command": "the stories of any model on target", "said": said}


PARTS: dict[str, Part] = {"kernels": kernels, "times": times, "models": models, "stories": stories}


def versions() -> dict[str, str]:
    from importlib import metadata

    names = ("torch", "triton", "transformers", "numpy")
    found = {"python": sys.version.split()[0], "cuda": str(torch.version.cuda)}
    installed = {d.metadata["Name"].lower() for d in metadata.distributions()}
    return found | {n: metadata.version(n) for n in names if n in installed}


def measured(parts: dict[str, Part]) -> dict[str, dict]:
    """How each part ended; one that raises is wrong, and the others go on."""
    ended = {}
    for name, part in parts.items():
        print(f"-- {name}", flush=True)
        start = time.monotonic()
        try:
            ended[name] = part()
        except Exception as error:  # whatever it is, it belongs into the file
            ended[name] = {"said": [f"{type(error).__name__}: {error}"], "right": False}
        ended[name]["seconds"] = round(time.monotonic() - start, 1)
    return ended


def main(arguments: list[str] | None = None, results: Path = RESULTS) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="this part, and no other")
    parser.add_argument("--stories-on-cpu", action="store_true", help="only these, and no GPU")
    options = parser.parse_args(arguments)
    if options.stories_on_cpu:
        return 0 if stories("cpu", results)["right"] else 1
    chosen = options.only or list(PARTS)
    if not torch.cuda.is_available():
        print(
            f"no GPU: torch {torch.__version__} sees none, so nothing was run and no file written. "
            "The course's own environment has the torch for CPUs: name a Python whose torch has "
            "CUDA, make gpu GPU_PYTHON=/path/to/python",
            file=sys.stderr,
        )
        return 2
    sys.path[:0] = [str(ROOT)]
    gpu = torch.cuda.get_device_name()
    ended = measured({name: PARTS[name] for name in chosen})
    report = {"gpu": gpu, "versions": versions(), "parts": ended}
    results.mkdir(parents=True, exist_ok=True)
    file = results / f"gpu-{gpu.lower().replace(' ', '-').replace('/', '-')}.json"
    file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, part in ended.items():
        print(f"{name:10s} {'right' if part['right'] else 'WRONG'}, {part['seconds']} s")
    print(f"written: {file}")
    return 0 if all(part["right"] for part in ended.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
