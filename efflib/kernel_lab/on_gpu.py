"""A notebook's attention kernel on a GPU, against PyTorch's: how long it takes, how far it is off.

    print(timed(attend, (1024, 4096)))

The notebook's own process interprets kernels, and cannot compile any more.  So the kernel's text
goes to a process of its own, `python -m efflib.kernel_lab.on_gpu`, which compiles and runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

HEADS, D, BLOCK, REPEATS = 8, 64, 64, 20
COMMAND = [sys.executable, "-m", "efflib.kernel_lab.on_gpu"]


def timed(kernel, lengths) -> str:
    """A line for each number of tokens; without a GPU one that says so."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU here: nothing is timed"
    name = torch.cuda.get_device_name()
    rows = against_sdpa(kernel, lengths).items()
    return "\n".join(
        f"{name}, {n} tokens, {HEADS} heads of {D}: yours {row['ms']:.3f} ms, "
        f"PyTorch's {row['sdpa_ms']:.3f} ms, off by {row['off']:.0e}"
        for n, row in rows
    )


def against_sdpa(kernel, lengths, device: str = "cuda") -> dict[int, dict[str, float]]:
    """{tokens: {"ms", "sdpa_ms", "off"}} of a kernel with the parameters of the lab's `attend`.

    device: "cuda"; "cpu" interprets, which says nothing about time.  Raises RuntimeError with the
    last line of what went wrong.
    """
    from efflib.meter.kernel_source import module_source

    source, name = module_source(kernel)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    request = {"source": source, "kernel": name, "lengths": list(lengths), "device": device}
    done = subprocess.run(
        COMMAND, input=json.dumps(request), capture_output=True, text=True, env=environment
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{name} does not run on {device}: {last}")
    return {int(n): row for n, row in json.loads(done.stdout).items()}


def _milliseconds(call, device: str) -> float:
    """Mean of some calls, after one that compiles."""
    import torch

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    call()
    wait()
    start = time.perf_counter()
    for _ in range(REPEATS):
        call()
    wait()
    return (time.perf_counter() - start) / REPEATS * 1e3


def _compared(kernel, n: int, device: str) -> dict[str, float]:
    import torch

    if device == "cpu":  # mends the interpreter of Triton 3.6, for which NumPy is too new
        import efflib.meter.interpreter  # noqa: F401

    dtype = torch.float16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(HEADS, n, D, dtype=dtype, device=device) for _ in range(3))
    o, lse = torch.empty_like(q), torch.empty(HEADS, n, device=device)
    sizes = [*q.stride()[:2], *k.stride()[:2], n, n, n, D**-0.5]
    grid = (-(-n // BLOCK), HEADS)

    def own():
        kernel[grid](q, k, v, o, lse, *sizes, D=D, BM=BLOCK, BN=BLOCK)

    def theirs():  # batches have to be there for its fast ways
        return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]

    times = {"ms": _milliseconds(own, device), "sdpa_ms": _milliseconds(theirs, device)}
    return times | {"off": (o - theirs()).abs().max().item()}


def main() -> None:
    request = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # Triton prints failures of ptxas
    from efflib.meter.compile_worker import load_kernel

    with tempfile.TemporaryDirectory() as folder:
        kernel = load_kernel(request["source"], request["kernel"], folder)
        device = request["device"]
        found = {n: _compared(kernel, n, device) for n in request["lengths"]}
    json.dump(found, stdout)


if __name__ == "__main__":
    main()
