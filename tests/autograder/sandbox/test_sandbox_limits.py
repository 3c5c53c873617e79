"""Where limits come from, on file systems made up for the test; and the system call filter."""

import os
import struct
from pathlib import Path

import pytest

from autograder.sandbox import limits, seccomp
from autograder.sandbox.limits import SandboxUnavailable

V2 = "0::/user.slice/app.slice/grader.scope\n"
V1 = "8:pids:/\n4:memory:/box/inner\n2:cpu,cpuacct:/\n0::/\n"


def v2_tree(root: Path) -> Path:
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    folder = root
    for name, below in (("", "memory pids"), ("user.slice", "memory pids"), ("app.slice", "pids")):
        folder = folder / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(f"{below}\n")
    (folder / "grader.scope").mkdir()
    (folder / "grader.scope" / "cgroup.subtree_control").write_text("\n")
    return root


def test_own_groups_of_both_versions():
    assert limits.own_cgroups(V2) == {"": "/user.slice/app.slice/grader.scope"}
    assert limits.own_cgroups(V1) == {
        "pids": "/",
        "memory": "/box/inner",
        "cpu": "/",
        "cpuacct": "/",
        "": "/",
    }


def test_version_2_takes_the_nearest_ancestor_with_both_controllers(tmp_path):
    root = v2_tree(tmp_path)
    found = limits.parent_sets(root, limits.own_cgroups(V2))
    assert found == [(2, (root / "user.slice",)), (2, (root,))]


def test_version_2_without_controllers_gives_none(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("\n")
    assert limits.parent_sets(tmp_path, limits.own_cgroups(V2)) == []


def test_version_1_prefers_its_own_group(tmp_path):
    for name in ("memory/box/inner", "pids"):
        (tmp_path / name).mkdir(parents=True)
    found = limits.parent_sets(tmp_path, limits.own_cgroups(V1))
    inside = (1, (tmp_path / "memory/box/inner", tmp_path / "pids"))
    assert found == [inside, (1, (tmp_path / "memory", tmp_path / "pids"))]


def test_version_1_in_a_container_whose_paths_are_the_hosts(tmp_path):
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
    found = limits.parent_sets(tmp_path, {"memory": "/docker/a", "pids": "/docker/a"})
    assert found == [(1, (tmp_path / "memory", tmp_path / "pids"))]


def test_version_1_takes_the_cpus_too_where_it_can(tmp_path):
    """cpu and cpuacct are often two names of one folder."""
    for name in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / name).mkdir()
    for name in ("cpu", "cpuacct"):
        (tmp_path / name).symlink_to("cpu,cpuacct")
    names = ("memory", "cpu,cpuacct", "pids")
    with_cpus, without = limits.parent_sets(tmp_path, {})
    assert with_cpus == (1, tuple(tmp_path / name for name in names))
    assert without == (1, (tmp_path / "memory", tmp_path / "pids"))
    (tmp_path / "cpu" / "cpu.shares").write_text("1024\n")
    assert limits.make_in(*with_cpus, 100, 10).shares
    assert not limits.make_in(*without, 100, 10).shares


def test_version_2_has_shares_where_the_controller_is_on(tmp_path):
    root = v2_tree(tmp_path)
    assert not limits.make_in(2, (root / "user.slice",), 100, 10).shares
    (root / "user.slice" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert limits.make_in(2, (root / "user.slice",), 100, 10).shares


@pytest.mark.parametrize("version, folders", [(1, ("memory", "pids")), (2, ("all",))])
def test_both_limits_are_written(tmp_path, version, folders):
    parents = tuple(tmp_path / name for name in folders)
    for parent in parents:
        parent.mkdir()
    group = limits.make_in(version, parents, 100, 40)
    memory = group.folders[0] / limits.MEMORY_FILES[version][0]
    assert int(memory.read_text()) == 100 * 2**20
    assert int((group.folders[-1] / "pids.max").read_text()) == 40 + limits.OWN_PROCESSES
    assert str(os.getpid()) in group.folders[0].name


def test_a_group_that_cannot_be_limited_is_removed(tmp_path, monkeypatch):
    (tmp_path / "memory").mkdir()
    with pytest.raises(OSError):
        limits.make_in(1, (tmp_path / "memory", tmp_path / "missing"), 100, 40)
    assert list((tmp_path / "memory").iterdir()) == []


def test_root_without_a_group_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "usable_parents", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SandboxUnavailable, match="ordinary user"):
        limits.make_cgroup(100, 10)


def test_others_without_a_group_get_rlimits(monkeypatch):
    monkeypatch.setattr(limits, "usable_parents", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert limits.make_cgroup(100, 10) is None
    own = limits.worker_limits(100, 10, cgroup=False)
    assert own["address_mb"] == 100 and own["processes"] == 10
    assert own["nice"] == limits.NICE
    own = limits.worker_limits(100, 10, cgroup=True, shares=True)
    assert "address_mb" not in own and own["nice"] == 0


# ---- the filter ---------------------------------------------------------------------------------


def run(program: bytes, number: int, argument: int, architecture: int, second: int = 0) -> int:
    """Classic BPF on one struct seccomp_data."""
    data = struct.pack("=IIQQQ", number, architecture, 0, argument, second) + bytes(32)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, value = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == seccomp.LOAD:
            (value,) = struct.unpack_from("=I", data, constant)
        elif operation == seccomp.JUMP_EQUAL:
            at += if_true if value == constant else if_false
        elif operation == seccomp.JUMP_SET:
            at += if_true if value & constant else if_false
        elif operation == seccomp.JUMP_ABOVE:
            at += if_true if value >= constant else if_false
        else:
            return constant


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_the_filter_denies_what_it_names_and_nothing_else(monkeypatch, machine):
    monkeypatch.setattr("platform.machine", lambda: machine)
    column, audit = seccomp.ARCHITECTURES[machine]
    program, socket = seccomp.program(), seccomp.SOCKET[column]
    denied = {numbers[column] for numbers in seccomp.DENIED.values()} - {None}
    assert len(denied) == len(seccomp.DENIED) - (machine == "aarch64")  # no inotify_init there
    for number in set(range(600)) - {socket, seccomp.CLONE3}:
        wanted = seccomp.NOT_PERMITTED if number in denied else seccomp.ALLOW
        assert run(program, number, 0, audit) == wanted
    assert run(program, seccomp.CLONE3, 0, audit) == seccomp.NOT_THERE
    for flags in (0x10000000, 0x7E020011):
        assert run(program, seccomp.CLONE[column], flags, audit) == seccomp.NOT_PERMITTED
    for command in range(1200):  # of fcntl: locks, leases and notices
        wanted = seccomp.NOT_PERMITTED if command in seccomp.LOCKS else seccomp.ALLOW
        assert run(program, seccomp.FCNTL[column], 5, audit, command) == wanted
    for family in range(50):
        wanted = seccomp.ALLOW if family in (1, 2, 10) else seccomp.NOT_PERMITTED
        assert run(program, socket, family, audit) == wanted
    assert run(program, 1, 0, 0x40000003) == seccomp.KILL  # 32-bit calls
    assert run(program, seccomp.X32_BIT + 1, 0, audit) == seccomp.NOT_PERMITTED


def test_no_filter_for_other_machines(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.program()
