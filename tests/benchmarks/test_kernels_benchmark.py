"""The GPU benchmark without a GPU: its table and arguments, and that its contenders are right.

The times come from a GPU only; here a clock that gives fixed numbers stands in for CUDA events.
"""

import json
import sys
from importlib import metadata, util
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import kernel_cases  # noqa: E402
import kernel_linear_cases  # noqa: E402
from kernel_inputs import Case  # noqa: E402

# by its file: transformers imports whatever is called `kernels`, also the folder of tests
spec = util.spec_from_file_location("kernels_benchmark", FOLDER / "kernels.py")
benchmark = util.module_from_spec(spec)
sys.modules[spec.name] = benchmark
spec.loader.exec_module(benchmark)

TINY = [
    kernel_cases.prefill(64, True, heads=2, d=16, device="cpu"),
    kernel_cases.prefill(48, False, heads=1, d=16, device="cpu"),
    kernel_cases.windowed(64, 16, heads=1, d=16, device="cpu"),
    kernel_cases.backward(64, heads=1, d=16, device="cpu"),
    kernel_cases.decoding(128, (4, 2), 16, device="cpu"),
    kernel_linear_cases.w4a16(1, 32, 256, device="cpu"),
    kernel_linear_cases.w8a8(16, 32, 128, device="cpu"),
    kernel_linear_cases.nf4(32, 64, device="cpu"),
]


def clock(calls, rounds):
    """As `milliseconds`, without a GPU: every call is made once."""
    for call in calls:
        call()
    return 2.0, rounds


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_contenders_of_efflib_run_and_are_right(case):
    own = {name: c for name, c in case.contenders.items() if "efflib" in name}
    rows = benchmark.run(case._replace(contenders=own), clock, l2=0, rounds=3)
    assert [row.contender for row in rows] == list(own) and own
    for row in rows:
        assert not row.reason and row.ms == 2.0 and 0 < row.error <= case.limit
        assert row.tflops == pytest.approx(case.flops / 2e-3 / 1e12)
        assert row.gbs == pytest.approx(case.moved / 2e-3 / 1e9)


def test_every_kind_of_case_is_tried_here():
    def kind(name):
        return name.split("-")[0]

    assert {kind(case.name) for case in TINY} == {kind(case.name) for case in kernel_cases.cases()}
    names = [case.name for case in kernel_cases.cases()]
    titles = [case.title for case in kernel_cases.cases()]
    assert len(set(names)) == len(set(titles)) == len(names)


def test_torch_contenders_are_right_where_a_cpu_has_them():
    case = TINY[0]
    rows = benchmark.run(case, clock, 0, 3)
    by_name = {row.contender: row for row in rows}
    assert by_name["SDPA MATH"].ms == 2.0 and by_name["SDPA MATH"].error <= case.limit
    assert by_name["SDPA CUDNN"].ms is None and by_name["SDPA CUDNN"].reason


def made(outputs, limit=0.1):
    """A case of contenders that return (or raise) what is given; the error is the output itself."""

    def contender(output):
        def call():
            if isinstance(output, Exception):
                raise output
            return output

        return lambda inputs: call

    contenders = {name: contender(output) for name, output in outputs.items()}
    return Case("c-1", "A case", dict, contenders, lambda i, o: o, limit, 4e9, 2e6)


def test_wrong_and_broken_contenders_are_not_timed():
    outputs = {
        "good": 0.05,
        "wrong": 0.2,
        "nan": float("nan"),
        "broken": ImportError("no | lib\nx"),
    }
    rows = {row.contender: row for row in benchmark.run(made(outputs), clock, 0, 5)}
    assert rows["good"].ms == 2.0 and rows["good"].rounds == 5
    assert rows["good"].tflops == 2.0 and rows["good"].gbs == 1.0
    for name in ("wrong", "nan", "broken"):
        assert rows[name].ms is rows[name].tflops is rows[name].gbs is None
    assert rows["wrong"].reason == "wrong: relative error 0.2, limit 0.1"
    assert rows["nan"].reason.startswith("wrong")
    assert rows["broken"].reason == "ImportError: no | lib"


def result(ms):
    outputs = {name: 0.01 for name in ms} | {"absent": ImportError("not | here")}
    rows = benchmark.run(made(outputs), clock, 0, 3)
    rows = [row._replace(ms=ms.get(row.contender)) for row in rows]
    environment = {"gpu": "Test GPU/1", "driver, clock, power": "1, 2, 3", "cuda": "13",
                   "cudnn": 9, "versions": {"torch": "2"}}  # fmt: skip
    return {"environment": environment, "rows": [row._asdict() for row in rows]}


def test_table_marks_the_fastest_and_gives_reasons():
    text = benchmark.table(result({"slow": 2.5, "fast": 0.125}))
    assert "Test GPU/1" in text and "**A case**" in text
    assert "| fast | **0.1250** | 2.0 | 1 | 1.0e-02 |" in text
    assert "| slow | 2.5000 | 2.0 | 1 | 1.0e-02 |" in text
    assert "| absent | ImportError: not / here |  |  |  |" in text


def test_a_table_without_any_time_has_no_fastest():
    text = benchmark.table(result({}))
    assert "**A case**" in text and text.count("**") == 2


def test_results_are_written_as_json_and_markdown(tmp_path):
    measured = result({"fast": 1.0})
    paths = benchmark.write(measured, tmp_path / "results", tmp_path / "table.md")
    assert paths[0].name == "kernels-test-gpu-1.json"
    assert json.loads(paths[0].read_text()) == measured
    assert paths[1].read_text() == benchmark.table(measured)


def test_copies_move_more_than_the_cache_holds():
    assert benchmark.copies(moved=100, l2=1000) == benchmark.MOST_COPIES
    assert benchmark.copies(moved=1000, l2=1000) == 4
    assert benchmark.copies(moved=900, l2=1000) == 5
    assert benchmark.copies(moved=10**9, l2=1000) == benchmark.copies(0, 0) == 2


def test_arguments(capsys):
    assert benchmark.parse([]).rounds == 30 and benchmark.parse(["--only", "x"]).only == "x"
    with pytest.raises(SystemExit):
        benchmark.parse(["--rounds", "2"])
    assert "at least 3" in capsys.readouterr().err


def test_versions_name_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(benchmark, "PACKAGES", ("torch", "no-such-package"))
    found = benchmark.versions()
    assert (
        found["torch"] == metadata.version("torch") and found["no-such-package"] == "not installed"
    )


def test_without_a_gpu_nothing_is_written(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(benchmark, "write", lambda *_: pytest.fail("wrote a file"))
    assert benchmark.main([]) == 0
    assert capsys.readouterr().out == "no GPU: nothing was measured, and no file written\n"
