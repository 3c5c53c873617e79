"""What a grading server does before it forks its first child: once, and not in each of them."""

import contextlib
from collections.abc import Callable
from importlib import import_module

from autograder.grading.ungraded import sandbox_spec
from autograder.labs.manifest import LabSpec


def ready_to_grade(lab: LabSpec, unsafe: bool, serve: Callable[[], None]) -> None:
    """In a server: what its children need is imported, collected and started before they fork."""
    from autograder.sandbox import ahead

    ahead.want(sandbox_spec(lab, unsafe))
    ahead.make()  # its zygote imports torch while this process does
    import torch.fx.experimental.symbolic_shapes  # noqa: F401 - else backward(g), in each child

    from autograder.grading import job, verdict  # noqa: F401 - what a child grades with
    from autograder.grading.rebuild import rebuild
    from autograder.intake.notebook import parse_notebook
    from autograder.labs.hashing import grader_hash
    from efflib.lab.runner import TestFileError, collected

    grader_hash()  # kept: each result has it
    for name in lab.preload:
        if name.startswith("efflib."):  # tests take it from here, drivers from the zygote
            with contextlib.suppress(ImportError):  # the zygote will say so
                import_module(name)

    with contextlib.suppress(Exception):  # each submission's row will say so
        release = parse_notebook(lab.release_notebook.read_bytes())
        rebuild(release, release)  # cells that students leave as they are need not be read again

    try:
        collected(list(lab.test_files.values()), serve)
    except TestFileError:  # each submission's row will say so
        serve()
