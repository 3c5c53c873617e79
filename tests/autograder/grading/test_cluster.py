"""Grading on Dask: warm sandboxes on every worker, and one that is killed changes nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import disturbed
import pytest
import yaml
from disturbed import below, eventually, in_file, table
from toylab import NAME

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
pytestmark = pytest.mark.slow
STUDENTS = 12
ROOT = Path(__file__).parents[3]
SRUN = '#!/bin/sh\n"$@" & "$@" & wait\n'  # two tasks on this machine


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    return disturbed.hand_in(tmp_path_factory.mktemp("class") / "in", STUDENTS)


@pytest.fixture(scope="module")
def alone(handed_in, tmp_path_factory):
    """A course that was graded on this machine, without a cluster."""
    course = disturbed.new_course(tmp_path_factory.mktemp("alone") / "course")
    assert disturbed.grading(course, handed_in).wait() == 0, (course / "log.txt").read_text()
    return course


def zygotes(root: int) -> list[int]:
    processes = table()
    return [pid for pid in below(root, processes) if '"zygote"' in processes[pid][1]]


def stored(course) -> int:
    return len(list((course / "build" / "results" / NAME).glob("*/*.json")))


def worker_in_the_middle(cluster, run: subprocess.Popen, course: Path) -> int:
    """A worker with warm sandboxes, as soon as there are some results."""
    while run.poll() is None:
        pids = [nanny.process.process.pid for nanny in cluster.workers.values()]
        busy = [pid for pid in pids if zygotes(pid)]
        if busy and stored(course) > 2:
            return busy[0]
        time.sleep(0.2)
    raise AssertionError(f"it was over before: {(course / 'log.txt').read_text()}")


def test_a_worker_that_is_killed_costs_nobody_anything(alone, handed_in, tmp_path):
    course = disturbed.new_course(tmp_path / "course")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with disturbed.orphans() as left:
        with distributed.LocalCluster(**options, local_directory=tmp_path / "dask") as cluster:
            run = disturbed.grading(course, handed_in, "--scheduler", cluster.scheduler_address)
            victim = worker_in_the_middle(cluster, run, course)
            assert stored(course) < STUDENTS - 3
            os.kill(victim, signal.SIGKILL)
            assert run.wait() == 0, (course / "log.txt").read_text()
        assert eventually(lambda: not left()), left()
    same(course, alone)


def same(course: Path, alone: Path) -> None:
    """The gradebook, and the names of everything that grading writes; students' stored results
    are named by what decided them."""
    assert in_file(course) == in_file(alone)
    for name in ("build/results", "autograded", "feedback", "marking"):
        assert disturbed.files(course / name) == disturbed.files(alone / name)


# ---- what the page on clusters tells to copy -----------------------------------------------------


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def environment(folder: Path, **more: str) -> dict[str, str]:
    programs = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    own = {"PATH": os.pathsep.join(programs), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return os.environ | own | {"OMP_NUM_THREADS": "1"} | more


def test_the_script_for_slurm(alone, handed_in, tmp_path):
    course = disturbed.new_course(tmp_path / "course")
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    command = ["bash", "scripts/grade.slurm", NAME, str(handed_in), "--course", str(course)]
    with disturbed.orphans() as left:
        env = environment(srun.parent, PORT=free_port())
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert eventually(lambda: not left()), left()
    same(course, alone)


def test_the_commands_for_kubernetes(alone, handed_in, tmp_path):
    """Each container's, with the names of the cluster's replaced by those of this machine."""
    course, port = disturbed.new_course(tmp_path / "course"), free_port()
    here = {"grading-scheduler": "127.0.0.1", "8786": port, "/tmp": str(tmp_path), "LAB": NAME}
    here |= {"/course/SUBMISSIONS": str(handed_in), "/course": str(course)}
    documents = list(yaml.safe_load_all((ROOT / "scripts/grade-kubernetes.yaml").read_text()))
    commands = {}
    for document in documents:
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", []):
            words = container["command"]
            for name, own in here.items():
                words = [own if word == name else word for word in words]
            address = f"tcp://127.0.0.1:{port}"
            commands[container["name"]] = [
                address if word.startswith("tcp://") else word for word in words
            ]
    service = documents[0]
    assert service["spec"]["selector"] == {"app": service["metadata"]["name"]}
    env = environment(tmp_path / "bin")
    with disturbed.orphans() as left:
        running = [
            subprocess.Popen(commands[name], cwd=tmp_path, env=env)
            for name in ("scheduler", "worker")
        ]
        try:
            done = subprocess.run(commands["grading"], cwd=ROOT, env=env)
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait(disturbed.END_SECONDS)
        assert done.returncode == 0
        assert eventually(lambda: not left()), left()
    same(course, alone)
