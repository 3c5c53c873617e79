"""The part of `compiling` that runs in a process of its own, where Triton compiles.

Reads {"source", "kernel", "jobs", "sass"} as JSON from stdin, writes one result per job to stdout.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

INSTRUCTIONS = {
    "wgmma": r"\bwgmma\.mma_async",
    "tcgen05": r"\btcgen05\.mma",
    "mma": r"\bmma\.sync",
    "tma": r"\bcp\.async\.bulk\.tensor",
    "cp_async": r"\bcp\.async\.c[ag]\.",
}


def load_kernel(source: str, name: str, folder: str):
    path = Path(folder) / "kernel_source.py"  # Triton reads the file again
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernel_source", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def constant(value):
    """A compile-time value; types of Triton come as {"dtype": name}."""
    import triton.language as tl

    return tl.dtype(value["dtype"]) if isinstance(value, dict) else value


def resources(cubin: bytes, folder: str) -> dict[str, int]:
    """{"REG": registers per thread, "STACK": bytes per thread, ...} from the compiled kernel."""
    from triton import knobs

    path = Path(folder) / "kernel.cubin"
    path.write_bytes(cubin)
    tool = knobs.nvidia.cuobjdump.path
    done = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True)
    return {name: int(n) for name, n in re.findall(r"\b([A-Z]+):(\d+)", done.stdout + done.stderr)}


def disassembled(folder: str) -> str:
    """The machine code (SASS) of the kernel that `resources` left in the folder."""
    from triton import knobs

    command = [knobs.nvidia.nvdisasm.path, "-c", Path(folder) / "kernel.cubin"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_one(kernel, job: dict, folder: str, sass: bool = False) -> dict:
    """Compile for one target; the fields of a CompileReport."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [p.name for p in kernel.params]
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n in job["aligned"]}
    values = {name: constant(value) for name, value in job["constants"].items()}
    source = ASTSource(kernel, signature=job["signature"], constexprs=values, attrs=aligned)
    target = GPUTarget("cuda", job["capability"], 32)
    compiled = triton.compile(source, target=target, options=job["options"])
    used = resources(compiled.asm["cubin"], folder)
    counts = {k: len(re.findall(v, compiled.asm["ptx"])) for k, v in INSTRUCTIONS.items()}
    return {
        "registers": used["REG"],
        "stack_bytes": used["STACK"],
        "shared_bytes": compiled.metadata.shared,
        "warps": compiled.metadata.num_warps,
        "ptx": compiled.asm["ptx"],
        "sass": disassembled(folder) if sass else "",
    } | counts


def explain(error: BaseException) -> dict[str, str]:
    """{"kind", "message"}: missing tools apart from kernels that do not compile."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    text = "\n".join(dict.fromkeys(str(e).strip() or type(e).__name__ for e in causes))
    missing = isinstance(error, RuntimeError) and text.startswith("Cannot find ")
    return {"kind": "missing" if missing else "failed", "message": text}


def main() -> None:
    request = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # Triton prints failures of ptxas
    results = []
    with tempfile.TemporaryDirectory() as folder:
        kernel = load_kernel(request["source"], request["kernel"], folder)
        for job in request["jobs"]:
            try:
                results.append(compile_one(kernel, job, folder, request["sass"]))
            except Exception as error:  # whatever the compiler says goes back to the caller
                results.append({"error": explain(error)})
    json.dump(results, stdout)


if __name__ == "__main__":
    main()
