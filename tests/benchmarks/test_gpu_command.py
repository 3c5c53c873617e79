"""`make gpu` without a GPU: what it says, and how it judges its parts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu  # noqa: E402


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([], tmp_path) == 2
    assert "no GPU: torch" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it runs for minutes")
def test_make_hands_the_exit_code_on():
    done = subprocess.run(
        ["make", "gpu", f"GPU_PYTHON={sys.executable}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "make gpu GPU_PYTHON=" in done.stderr


def with_a_gpu(monkeypatch, parts):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Test GPU/1")
    monkeypatch.setattr(gpu, "PARTS", parts)


def test_each_part_stands_in_the_file_with_versions(tmp_path, monkeypatch, capsys):
    def broken():
        raise OSError("lost")

    with_a_gpu(monkeypatch, {"a": lambda: {"right": True}, "b": broken, "c": lambda: {"right": 1}})
    assert gpu.main([], tmp_path) == 1
    report = json.loads((tmp_path / "gpu-test-gpu-1.json").read_text())
    assert report["gpu"] == "Test GPU/1" and report["versions"]["torch"]
    assert list(report["parts"]) == ["a", "b", "c"]
    assert report["parts"]["b"]["said"] == ["OSError: lost"] and not report["parts"]["b"]["right"]
    assert "b          WRONG" in capsys.readouterr().out
    assert gpu.main(["--only", "a"], tmp_path) == 0


def test_a_child_s_exit_code_counts():
    assert gpu.child("-c", "print('one')")["right"] is True
    failed = gpu.child("-c", "print('one'); raise SystemExit(3)")
    assert failed["right"] is False and failed["said"] == ["one"]


def test_losses_of_both_devices_have_to_agree():
    assert gpu.agree({"a on cpu": 2.0, "a on cuda": 2.001})
    assert not gpu.agree({"a on cpu": 2.0, "a on cuda": 2.01})
    assert not gpu.agree({"a on cpu": 2.0, "a on cuda": float("nan")})
    assert not gpu.agree({"a on cpu": 2.0})


def test_the_stories_part_runs_and_writes(tmp_path):
    found = gpu.stories("cpu", tmp_path, ("quantization",))
    assert found["right"], found
    report = json.loads((tmp_path / "quantization-target.json").read_text())
    assert report["losses"]["RTN 3 bits"] > report["losses"]["float"]
    assert report["setting"]["device"] == "cpu" and report["text"]["name"] == "course-code.txt"


def test_the_kernels_part_names_files_that_are_there():
    assert all((ROOT / file).is_file() for file in gpu.KERNEL_TESTS)
