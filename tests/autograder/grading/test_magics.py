"""IPython's syntax becomes Python; what grading cannot run says so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.grading.magics import to_python

MAGICS = {
    "x = 1\n%time y = 2": "x = 1\ny = 2",
    "%timeit -n 10 -r 3 f(-n)": "f(-n)",
    "y = %timeit -o f(2)": "y = f(2)",
    "for i in a:\n    %time f(i)": "for i in a:\n    f(i)",
    "%matplotlib inline\nx = 1": "pass\nx = 1",
    "scale?": "pass",
    "%%time\ndef f():\n    return 1": "# %%time\ndef f():\n    return 1",
    "# fast\n%%capture out\n%time x = 1": "# fast\n# %%capture out\nx = 1",
    "    indented = 1": "indented = 1",
    ">>> x = 1": "x = 1",
    "x = '%time'  # %pip": "x = '%time'  # %pip",
}


@pytest.mark.parametrize("source, python", MAGICS.items())
def test_magics_become_python(source, python):
    assert to_python(source) == (python, ())


@pytest.mark.parametrize(
    "source, python, note",
    [
        ("!pip install x", "pass", "`!pip install x` was not run"),
        ("files = !ls", "files = None", "`!ls` was not run"),
        ("%pip install x", "pass", "`%pip install x` was not run"),
        ("if a:\n    !rm -rf /", "if a:\n    pass", "`!rm -rf /` was not run"),
        ("%%bash\nrm -rf /", "", "%%bash"),
        ("%%writefile x.py\nx", "", "%%writefile"),
        ("%%", "", "%%"),
    ],
)
def test_what_is_not_run_says_so(source, python, note):
    result, notes = to_python(source)
    assert result == python and note in notes[0]


@pytest.mark.parametrize(
    "source", ["x = 1\x00", "def f(:", "(" * 5000, "%time " * 5000, "%\n" * 50_000, "x?" * 10_000]
)
def test_hostile_text_comes_back(source):
    assert isinstance(to_python(source)[0], str)


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="ab=%!?\"'#() \n\t\\:{", max_size=60))
def test_any_text_comes_back(source):
    python, notes = to_python(source)
    assert isinstance(python, str) and all(isinstance(note, str) for note in notes)
