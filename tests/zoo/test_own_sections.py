"""The cell of each lab that uses a model of one's own, on the device that stands for a GPU.

The notebooks run it on the CPU (tests/labs). Here the solved functions run where the model is: what
they print is the same, and no tensor goes from one place to the other.
"""

import ast
import re
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from elsewhere import Elsewhere
from torch.utils._python_dispatch import _disable_current_modes

from efflib import device
from efflib.zoo import own_model

ROOT = Path(__file__).parents[2]
LABS = tuple(
    f"lab{name}"
    for name in "01_quantization 02_smoothquant 03_awq 04_wanda 10_lora 11_gptq".split()
)
NUMBER = re.compile(r"[-+]?\d+\.\d+")
LAST_DIGIT = 0.002  # of a loss; attention sums in another order where the device is another
DEFINES = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
CONSTANT = re.compile(r"[A-Z]+(, [A-Z]+)* = [-\w., /+\[\]()]+$")  # GROUP, FRACTION = 32, 0.03


def cells(lab):
    """(header, code) of each code cell of the solved notebook."""
    manifest = (ROOT / "autograder/suites" / lab / "manifest.toml").read_text()
    name = re.search(r'^notebook = "(\w+)"', manifest, re.MULTILINE)[1]
    text = (ROOT / "solutions" / lab / f"{name}.py").read_text()
    parts = re.split(r"(?m)^# %%(.*)$", text)[1:]
    return [(h, code) for h, code in zip(parts[::2], parts[1::2], strict=True) if "[mark" not in h]


def definitions(lab):
    """A namespace with all that the notebook defines, and nothing that it runs."""
    space = {}
    for _, code in cells(lab):
        for node in ast.parse(code).body:
            if isinstance(node, DEFINES) or CONSTANT.match(ast.unparse(node)):
                with suppress(NameError):  # a default that the run notebook alone has
                    exec(ast.unparse(node), space)
    return space


@pytest.fixture(scope="module")
def spaces():
    return {lab: definitions(lab) for lab in LABS}


def printed(lab, space, use):
    (code,) = [code for _, code in cells(lab) if "lab.use()" in code]
    said = StringIO()
    with redirect_stdout(said):
        exec(compile(code, lab, "exec"), dict(space) | {"lab": SimpleNamespace(use=use)})
    return said.getvalue()


def test_every_lab_with_such_a_cell_is_here():
    sources = ROOT.glob("solutions/*/*.py")
    found = {path.parent.name for path in sources if "lab.use()" in path.read_text()}
    assert found == set(LABS)


@pytest.mark.parametrize("lab", LABS)
def test_the_same_comes_out_elsewhere_and_nothing_is_copied(lab, spaces, monkeypatch):
    monkeypatch.delenv(device.DTYPE, raising=False)
    monkeypatch.setenv(own_model.MODEL, "draft")
    monkeypatch.setattr(own_model, "CALIBRATION", 8)
    monkeypatch.setattr(own_model, "HELD_OUT", 2)
    monkeypatch.setenv(device.DEVICE, "cpu")
    here = printed(lab, spaces[lab], own_model.open_model)
    assert here.count("\n") >= 2
    monkeypatch.setenv(device.DEVICE, "meta")
    read, moved = own_model._read, []

    def on_the_cpu(*args):
        with _disable_current_modes():
            return read(*args)

    monkeypatch.setattr(own_model, "_read", on_the_cpu)

    def use():
        own = own_model.open_model()
        moved.append(elsewhere.arrived)
        return own

    with Elsewhere() as elsewhere:
        there = printed(lab, spaces[lab], use)
    assert NUMBER.split(there) == NUMBER.split(here)
    numbers = [list(map(float, NUMBER.findall(said))) for said in (there, here)]
    assert numbers[0] == pytest.approx(numbers[1], abs=LAST_DIGIT)
    assert moved == [elsewhere.arrived] and elsewhere.left == 0


def test_what_is_made_after_a_model_was_read_follows_the_device():
    """transformers has another linspace while it reads; torch would note that one in its place."""
    code = (
        "import torch; from efflib.zoo.own_model import open_model; open_model('draft')\n"
        "with torch.device('meta'): print(torch.linspace(0, 1, 3).device)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "meta\n"
