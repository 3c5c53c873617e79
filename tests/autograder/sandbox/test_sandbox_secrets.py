"""What must not be found inside: the tests, what they expect, withheld modules, the host."""

import os
import secrets
import socket
import threading

import pytest
import torch
from victims import WITHHELD

from autograder.sandbox import image
from efflib.lab.student import StudentError

pytestmark = pytest.mark.slow

# The needle is never whole inside: two halves, the second one XORed, so that the hunter does not
# find its own argument.
HUNT = """
import gc, os, re, sys

def files(needles):
    for folder, folders, names in os.walk("/"):
        skipped = ("/sys", "/usr", "/site/torch", "/site/triton") + (sys.base_prefix,)
        folders[:] = [f for f in folders if os.path.join(folder, f) not in skipped]
        for name in names:
            path = os.path.join(folder, name)
            if path.endswith(("/kmsg", "/kcore", "/mem", "/pagemap", "/clear_refs")): continue
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError: continue
            try: data = os.read(fd, 2**24)
            except OSError: data = b""
            os.close(fd)
            if found(data, needles) or found(path.encode(), needles): yield path

def found(data, needles):
    for first, masked in needles:
        at = data.find(first)
        while at >= 0:
            rest = data[at + len(first) : at + len(first) + len(masked)]
            if len(rest) == len(masked) and all(a ^ 0x5A == b for a, b in zip(rest, masked)):
                return True
            at = data.find(first, at + 1)
    return False

def memory(needles):
    hits = 0
    for line in open("/proc/self/maps"):
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        if " r" not in line or "[v" in line or "/" in line.split(None, 5)[-1]: continue
        with open("/proc/self/mem", "rb", buffering=0) as mem:
            try:
                mem.seek(low)
                while low < high:
                    data = mem.read(min(high - low, 2**24))
                    if not data: break
                    hits += found(data, needles)
                    low += len(data)
            except (OSError, OverflowError): pass
    return hits

def frames(needles):
    frame, hits = sys._getframe(), 0
    while frame:
        hits += found(repr(dict(frame.f_locals)).encode(), needles) and frame.f_code.co_name != "x"
        frame = frame.f_back
    return hits

def attack(needles):
    tensors = [x for x in gc.get_objects() if type(x).__name__ == "Tensor"]
    return {
        "files": list(files(needles)),
        "environ": found(repr(dict(os.environ)).encode(), needles),
        "shm": os.listdir("/dev/shm"),
        "frames": frames(needles),
        "tensors": sum(found(bytes(t.flatten().tolist()), needles) for t in tensors
                       if str(t.dtype) == "torch.uint8"),
        "memory": memory(needles),
    }
"""
NOTHING = {"files": [], "environ": False, "shm": [], "frames": 0, "tensors": 0, "memory": 0}


def halves(needle: bytes) -> tuple[bytes, bytes]:
    return needle[:8], bytes(byte ^ 0x5A for byte in needle[8:])


def test_the_hunt_finds_what_is_there(victim):
    """Otherwise the next test could not fail."""
    needle = secrets.token_hex(12).encode()
    victim.cell(f"import torch\nopen('/w/x', 'w').write({needle.decode()!r})")
    victim.cell(f"kept = torch.tensor(list({needle!r}), dtype=torch.uint8)")
    found = victim.run(HUNT, [halves(needle)])
    victim.cell("import os\nos.unlink('/w/x')\ndel kept")
    assert found["files"] == ["/w/x"] and found["memory"] > 0


def test_tests_and_expected_values_are_nowhere_inside(victim, tmp_path, monkeypatch):
    needle = secrets.token_hex(12).encode()
    (tmp_path / "test_hidden.py").write_bytes(b"SECRET = '" + needle + b"'")
    monkeypatch.setenv("EXPECTED", needle.decode())
    shared = torch.tensor(list(needle), dtype=torch.uint8).share_memory_()
    expected = torch.tensor(list(needle), dtype=torch.uint8)

    def function_of_the_test(x):
        return int((expected == x).sum()) + int(shared[0]) * 0

    cell = HUNT.replace("def attack(needles)", "def hunt(needles)")
    cell += "\ndef attack(needles, function):\n function(1)\n return hunt(needles)"
    assert victim.run(cell, [halves(needle)], function_of_the_test) == NOTHING


# ---- withheld modules ----------------------------------------------------------------------------

WAYS = {
    "from-import": "from efflib.quantization.linear import quantize_weight",
    "package": "import efflib.quantization as q; q.linear.quantize_weight",
    "importlib": "import importlib\n"
    "importlib.import_module('efflib.quantization.linear').quantize_weight",
    "dunder": "__import__('efflib.quantization.linear', fromlist=['x']).quantize_weight",
    "runpy": "import runpy\n"
    "assert 'quantize_weight' in runpy.run_module('efflib.quantization.linear')",
    "reload": "import importlib, efflib.quantization.linear as m; importlib.reload(m).group_count",
    "loader": "import importlib.util as u\n"
    "s = u.find_spec('efflib.quantization.linear'); m = u.module_from_spec(s)\n"
    "s.loader.exec_module(m); m.quantize_weight",
    "resources": "import importlib.resources as r\n"
    "assert 'def quantize' in (r.files('efflib') / 'quantization' / 'linear.py').read_text()",
    "inspect": "import inspect, efflib.quantization.linear as m\n"
    "assert 'def quantize' in inspect.getsource(m)",
    "pkgutil": "import pkgutil\n"
    "assert b'def quantize' in pkgutil.get_data('efflib', 'quantization/linear.py')",
    "pip": "import pip",
    "metadata": "import importlib.metadata as m; m.distribution('efficient-llm-course')",
}


@pytest.mark.parametrize("way", WAYS)
def test_withheld_modules_cannot_be_imported(victim, way):
    kind = victim.cell(WAYS[way]).error.replace(":", " ").split()[0]
    assert kind in ("ImportError", "ModuleNotFoundError", "AssertionError")


def test_the_source_of_withheld_modules_is_nowhere_inside(victim):
    """By content, in any file: sources, byte code, archives, other copies."""
    root = image.efflib_dir() / "quantization"
    marks = sorted({line for path in root.glob("*.py") for line in path.read_text().splitlines()})
    marks = [line.strip() for line in marks if len(line) > 60 and line[0] not in " \"'"][:8]
    names = ["kmeans_quantize_weight", "dequantize_kmeans_weight", "_unclamped_codes"]
    text = "".join(path.read_text() for path in root.glob("*.py"))
    assert len(marks) == 8 and all(name in text for name in names)
    cell = """
import io, os, zipfile
def attack(marks):
    marks, found = [mark.encode() for mark in marks], []
    for folder, folders, names in os.walk("/"):
        skipped = ("/proc", "/sys", "/dev", "/site/torch", "/site/triton", "/site/sympy")
        folders[:] = [f for f in folders if os.path.join(folder, f) not in skipped]
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith((".py", ".pyc", ".zip", ".whl", ".egg", ".txt", ".md", ".ipynb")):
                continue
            try: data = open(path, "rb").read()
            except OSError: continue
            if name.endswith((".zip", ".whl", ".egg")):
                archive = zipfile.ZipFile(io.BytesIO(data))
                data = b"".join(archive.read(n) for n in archive.namelist() if n.endswith(".py"))
            found += [path for mark in marks if mark in data]
    return found
"""
    assert victim.run(cell, marks + names) == []
    assert victim.run(cell, ["class CodecError(Exception)"]) == ["/site/efflib/lab/codec.py"]


def test_what_is_not_withheld_can_be_imported(victim):
    modules = {
        ".".join(("efflib", *path.with_suffix("").parts)).removesuffix(".__init__")
        for path in image.source_files(image.staged(WITHHELD) / "efflib")
        if path.suffix == ".py" and not image.is_withheld(path, WITHHELD)
    }
    tests = ("plugin", "student_kernel")  # pytest is not inside, nor what a server needs
    server = ("engine.answers", "engine.protocol", "engine.server")
    wanted = [m for m in sorted(modules) if not m.endswith(tests + server)]
    cell = "import importlib\ndef attack(names):\n failed = {}\n for name in names:\n"
    cell += (
        "  try: importlib.import_module(name)\n  except BaseException as e: failed[name] = str(e)"
    )
    failed = victim.run(f"{cell}\n return failed", wanted)
    # what is built on a withheld module is told so, and nothing else fails
    assert {m: why for m, why in failed.items() if "is not available in grading" not in why} == {}


# ---- the host ------------------------------------------------------------------------------------


def test_ports_and_sockets_of_the_host_cannot_be_reached(victim):
    """Row 44: no scheduler, database or Jupyter server that listens on this machine."""
    name = f"\0efflib-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(name)
        local.listen()
        cell = """
import socket
def attack(port, name):
    said = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, name)):
        try: socket.socket(family).connect(address); said.append("connected")
        except OSError as fault: said.append(fault.strerror)
    return said
"""
        said = victim.run(cell, tcp.getsockname()[1], name)
    assert said in (["Connection refused"] * 2, ["Network is unreachable", "Connection refused"])


def test_no_object_of_the_hosts_is_lent(victim):
    """A function of the test is a number inside; nothing of it can be read."""
    secret = secrets.token_hex(8)

    def function(x, hidden=secret):
        return x

    cell = "def attack(f):\n return repr([getattr(f, n, 0) for n in dir(f)]) + repr(f.__closure__)"
    said = victim.run(cell, function)
    assert secret not in said and "function_of" not in said and "test_" not in said


def test_the_sandbox_runs_without_the_course_in_its_working_directory(victim):
    with pytest.raises(StudentError):
        victim.run(f"import os\ndef attack(): return os.listdir({os.getcwd()!r})")
    assert threading.active_count() < 50
