"""course.py of a bundle: what it says before it loads, and what it gives to JupyterLab.

`make test-setup` runs it from the network; here the commands that it would run are recorded.
"""

import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

PROGRAM = Path(__file__).parents[3] / "autograder" / "bundle" / "files" / "course.py"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The program in a folder that is set up, on Linux; `course.ran` are its commands."""
    shutil.copyfile(PROGRAM, tmp_path / "course.py")
    (tmp_path / "constraints.txt").write_text("numpy==2\ntorch==2.13.0\n")
    spec = importlib.util.spec_from_file_location("course_program", tmp_path / "course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PYTHON.parent.mkdir(parents=True)
    module.PYTHON.touch()
    module.ran, module.fails, module.environments = [], [], []

    def recorded(command, cwd, env):
        module.ran.append(command[2:])
        module.environments.append(env)
        return SimpleNamespace(returncode=int(any(word in command for word in module.fails)))

    monkeypatch.setattr(module.subprocess, "run", recorded)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(module.sys, "platform", "linux")
    free_disk(module, monkeypatch, 50)
    return module


def free_disk(module, monkeypatch, gigabytes):
    usage = SimpleNamespace(free=gigabytes * 1e9)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)


def as_user(module, monkeypatch, uid):
    monkeypatch.setattr(module.os, "geteuid", lambda: uid, raising=False)


# ---- set-up -------------------------------------------------------------------------------------


def test_the_build_for_cpus_is_taken_without_a_word(course, capsys):
    assert course.main(["setup"]) == 0
    torch, rest = course.ran
    assert torch[-3:] == ["--index-url", course.CPU_INDEX, "torch==2.13.0"]
    assert "--retries 0" in " ".join(torch) and rest[-1] == "."
    assert capsys.readouterr().out == "Done. Now: python course.py lab\n"


def test_the_large_build_is_announced_before_it_is_loaded(course, capsys):
    course.fails = [course.CPU_INDEX]
    assert course.main(["setup"]) == 0
    told = capsys.readouterr().out
    assert "about 2.8 GB to load, 5.2 GB on disk (50 GB are free). Ctrl-C stops." in told
    assert len(course.ran) == 2


@pytest.mark.parametrize("arguments", [["setup"], ["setup", "--gpu"]])
def test_where_the_disk_is_too_small_nothing_is_loaded(course, arguments, monkeypatch, capsys):
    course.fails = [course.CPU_INDEX]
    free_disk(course, monkeypatch, 7.9)
    assert course.main(arguments) == 1
    told = capsys.readouterr().out
    assert "5.2 GB on disk, and 2.8 GB more while it is installed; 7.9 GB are free." in told
    assert not [words for words in course.ran if "--editable" in words]


def test_a_build_that_is_there_needs_no_room(course, monkeypatch):
    free_disk(course, monkeypatch, 1)
    (course.VENV / "lib" / "python3.11" / "site-packages" / "torch").mkdir(parents=True)
    assert course.main(["setup", "--gpu"]) == 0


@pytest.mark.parametrize("platform, commands", [("win32", 2), ("darwin", 1)])
def test_elsewhere_the_package_index_has_no_large_build(
    course, platform, commands, monkeypatch, capsys
):
    course.fails = [course.CPU_INDEX]
    monkeypatch.setattr(course.sys, "platform", platform)
    assert course.main(["setup"]) == 0 and len(course.ran) == commands
    assert "GPU build" not in capsys.readouterr().out


def test_ctrl_c_ends_the_set_up_in_one_line(course, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(course.subprocess, "run", interrupted)
    assert course.main(["setup"]) == 130
    assert capsys.readouterr().out == "Stopped. The same command goes on.\n"


# ---- lab ----------------------------------------------------------------------------------------


def notebooks(course, *names):
    for name in names:
        path = course.HERE / "labs" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True)
        path.touch()


def test_the_only_notebook_is_opened_and_of_several_the_folder(course):
    notebooks(course, "one")
    assert course.main(["lab"]) == 0
    notebooks(course, "two")
    assert course.main(["lab"]) == 0
    for words, opened in zip(course.ran, ("labs/one/one.ipynb", "labs"), strict=True):
        assert f"--LabApp.default_url=/lab/tree/{opened}" in words
        assert f"--ServerApp.root_dir={course.HERE}" in words


def test_root_is_allowed_where_there_is_nobody_else(course, monkeypatch):
    for uid, allowed in ((0, True), (1000, False)):
        as_user(course, monkeypatch, uid)
        assert course.main(["lab"]) == 0
        assert ("--allow-root" in course.ran[-1]) == allowed


def test_further_arguments_go_to_jupyter_last_so_that_they_win(course):
    more = ["--no-browser", "--port", "9000"]
    assert course.main(["lab", *more]) == 0
    assert course.ran[-1][:2] == ["jupyter", "lab"] and course.ran[-1][-3:] == more


def test_the_course_s_settings_come_before_one_s_own(course, monkeypatch):
    ours = str(course.HERE / "course" / "jupyter")
    for own in ("", "/own"):
        monkeypatch.setenv("JUPYTER_CONFIG_PATH", own)
        assert course.main(["lab"]) == 0
        paths = course.environments[-1]["JUPYTER_CONFIG_PATH"]
        assert paths == course.os.pathsep.join([ours, own] if own else [ours])


def test_before_the_set_up_it_is_asked_for(course, capsys):
    course.PYTHON.unlink()
    assert course.main(["lab", "--no-browser"]) == 2 and not course.ran
    assert capsys.readouterr().out == "First: python course.py setup\n"


def test_other_words_are_answered_by_what_there_is(course, capsys):
    for words in ([], ["setup", "--cpu"], ["labs"]):
        assert course.main(words) == 2 and not course.ran
        assert "python course.py setup" in capsys.readouterr().out
