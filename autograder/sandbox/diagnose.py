"""Does the sandbox work here, and if not, what is to be done?"""

from autograder.sandbox import image, launch, limits, warm
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.session import Session


def diagnose() -> list[tuple[str, bool, str]]:
    """[(what, whether it works, detail or remedy)] for `autograder doctor`."""
    rows = []

    def check(name: str, work) -> bool:
        try:
            rows.append((name, True, str(work())))
        except Exception as fault:
            rows.append((name, False, str(fault)))
        return rows[-1][1]

    def limited() -> str:
        group = limits.make_cgroup(64, 8)
        if group is None:
            return "rlimits (no cgroup can be made here): memory counts per process"
        group.remove()
        return f"cgroup {group.folders[0].parent}"

    def answers() -> str:
        with Session(SandboxSpec()) as session:
            report = session.run_cell("import torch; print(torch.__version__)", 30)
            return f"torch {report.stdout.strip()} in a sandbox"

    def forked() -> str:
        if warm.reason:
            return f"no, each imports torch anew: {warm.reason['reason']}"
        return "forked off one that has torch imported"

    if check("bubblewrap", launch.bwrap) and check("limits", limited):
        check("packages", lambda: f"{len(image.package_entries())} entries of the allow-list")
        if check("sandbox", answers):
            check("warm sandboxes", forked)
    return rows
