"""A first answer for whoever works on the course: lint, tests of what changed, triads of its labs.

    python scripts/quick.py [SINCE]     SINCE: a commit (default: what the last one and you changed)

Tests of a change are those of the files that import a changed one, directly or by one other; slow
ones are left out, as `make test` runs them.  Of a lab whose solution or suite changed the triad
runs, with one seed and without a sandbox.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("efflib", "autograder", "tests")


def changed_files(since: str) -> set[str]:
    """Files that differ from a commit, and new ones. Raises CalledProcessError for no commit."""
    commands = (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"])
    said = [subprocess.run(["git", *c], cwd=ROOT, check=True, capture_output=True, text=True).stdout
            for c in commands]  # fmt: skip
    return set("".join(said).split())


def module_of(path: Path) -> str:
    """ "efflib.zoo" for efflib/zoo/__init__.py; a file of tests/ goes by its bare name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[-1] if parts[0] == "tests" else ".".join(parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Names that a file may import: modules, and what it takes from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dependents(changed: set[Path], steps: int = 2) -> set[Path]:
    """The changed files and all that import one of them, by so many steps."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    modules = {module_of(path): path for path in files}
    wanted = {path: {modules[m] for m in imports_of(path) if m in modules} for path in files}
    reached = set(changed)
    for _ in range(steps):
        reached |= {path for path in files if wanted[path] & reached}
    return reached


def labs_of(changed: set[str]) -> list[str]:
    """Labs of which a solution or a suite changed."""
    places = [Path(name).parts for name in changed]
    solutions = {p[1] for p in places if p[0] == "solutions" and len(p) > 2}
    suites = {p[2] for p in places if p[:2] == ("autograder", "suites") and len(p) > 3}
    return sorted(solutions | suites)


def main() -> int:
    since = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    changed = changed_files(since)
    paths = {ROOT / name for name in changed if (ROOT / name).is_file()}
    python = {path for path in paths if path.suffix == ".py"}
    tests = sorted(str(p.relative_to(ROOT)) for p in dependents(python) if p.name[:5] == "test_")
    tests = [t for t in tests if t.startswith("tests/")]
    labs = labs_of(changed)
    commands = [["ruff", "check", "-q", "."], ["ruff", "format", "-q", "--check", "."]]
    parallel = ["--numprocesses", "2", "--dist", "loadscope"]
    if tests:
        commands.append(["pytest", "-m", "not slow", *parallel, *tests])
    for lab in labs:
        commands.append(["pytest", "tests/autograder/triad/test_triads.py", "-k", lab])
    of = f"{len(tests)} test files, labs: {' '.join(labs) or '-'}"
    print(f"{len(changed)} files since {since}: {of}", flush=True)
    failed = []
    for command in commands:
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT)
        if done.returncode not in (0, 5):  # 5: all of them are slow
            failed.append(" ".join(command[:3]))
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed", end="; ")
    print("left out: slow tests, sandboxes, notebooks, the class (make test)")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
