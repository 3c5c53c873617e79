"""nbgrader's own tests, which its package brings along, with this course's plug-in configured.

    python tests/nbgrader_own/run.py [--markdown FILE]        make test-nbgrader

What fails runs once more without the plug-in: what fails there too is not ours.  For the rest,
reasons.toml says why a test does not apply; a failure without a reason, and a reason that nothing
needs any more, end with exit code 1.
"""

import argparse
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

import nbgrader
import nbgrader.tests

HERE = Path(__file__).parent
TESTS = Path(nbgrader.tests.__file__).parent
FOLDERS = ("api", "preprocessors", "nbgraderformat", "utils", "test_validator.py", "apps")
KINDS = ("passed", "does not apply", "fails without us too", "skipped", "unexplained")


def run(tests: list[str], plug_in: bool) -> dict[str, str]:
    """{test: "passed" | "failure" | "error" | "skipped"}, run in an empty folder."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, f"--rootdir={TESTS}", f"--junitxml={report}"]
        command += ["-p", "configured"] if plug_in else []
        paths = f"{HERE}{os.pathsep}{HERE.parents[1]}"
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PYTHONPATH": paths, "PATH": programs, "USER": os.environ.get("USER", "teacher")}
        subprocess.run([*command, *tests], cwd=folder, env=os.environ | own, stdout=sys.stderr)
        return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file, dot, rest = case.get("classname").partition(".Test")
        name = "::".join([file, *([f"Test{rest}"] if dot else []), case.get("name")])
        kinds = [part.tag for part in case if part.tag in ("failure", "error", "skipped")]
        found[name] = kinds[0] if kinds else "passed"
    return found


def path_of(name: str) -> str:
    """ "apps.test_api::TestX::test_y" -> what pytest takes."""
    file, *rest = name.split("::")
    return "::".join([str(TESTS / file.replace(".", "/")) + ".py", *rest])


def judge(name: str, outcome: str, without: dict[str, str], reasons: dict[str, str]) -> str:
    if outcome in ("passed", "skipped"):
        return outcome
    if without[name] != "passed":
        return "fails without us too"
    explained = any(matches(name, pattern) for pattern in reasons)
    return "does not apply" if explained else "unexplained"


def table(judged: dict[str, str], reasons: dict[str, str]) -> str:
    """Markdown: a row for each file, then the reasons and how many tests each stands for."""
    files: dict[str, Counter] = {}
    for name, kind in judged.items():
        files.setdefault(name.split("::")[0], Counter())[kind] += 1
    lines = [f"| nbgrader {nbgrader.__version__} | " + " | ".join(KINDS) + " |"]
    lines += ["|" + "---|" * (len(KINDS) + 1)]
    for file, counts in {**files, "all": sum(files.values(), Counter())}.items():
        lines.append(f"| {file} | " + " | ".join(str(counts[kind]) for kind in KINDS) + " |")
    lines += ["", "Why tests do not apply:", ""]
    for pattern, reason in reasons.items():
        many = sum(matches(n, pattern) for n, kind in judged.items() if kind == KINDS[1])
        lines.append(f"- `{pattern}` ({many}): {reason}")
    return "\n".join(lines) + "\n"


def matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path, help="write the table to this file as well")
    options = parser.parse_args()
    reasons = tomllib.loads((HERE / "reasons.toml").read_text(encoding="utf-8"))
    found = run([str(TESTS / folder) for folder in FOLDERS], plug_in=True)
    failed = [name for name, outcome in found.items() if outcome in ("failure", "error")]
    without = run([path_of(name) for name in failed], plug_in=False) if failed else {}
    judged = {name: judge(name, outcome, without, reasons) for name, outcome in found.items()}
    text = table(judged, reasons)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    open_ones = [name for name, kind in judged.items() if kind == "unexplained"]
    idle = [p for p in reasons if not any(matches(name, p) for name in failed)]
    print(
        "\n".join([*(f"unexplained: {name}" for name in open_ones), *(f"idle: {p}" for p in idle)])
    )
    return 1 if open_ones or idle else 0


if __name__ == "__main__":
    sys.exit(main())
