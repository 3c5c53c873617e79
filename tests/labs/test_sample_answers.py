"""Sample answers to the written questions: solutions/<lab>/written.md.

Three for each question, with points in the order of the rubric's lines and a sentence why:

    ## w1
    ### full: 1 + 2 + 2 = 5
    (the answer)
    *Why:* (one sentence)
"""

import re
import tomllib
from pathlib import Path

import pytest

from autograder.labs.source import lab_sources, read_percent

ROOT = Path(__file__).parents[2]
LABS = lab_sources(ROOT)
LEVELS = ["full", "half", "low"]
LINE = 44  # characters: shorter lines of prose are often the same by chance


def manifest(lab: str) -> dict:
    return tomllib.loads((ROOT / "autograder/suites" / lab / "manifest.toml").read_text())


def cells(lab: str) -> list:
    return read_percent(ROOT / "solutions" / lab / f"{manifest(lab)['notebook']}.py").cells


def rubrics(lab: str) -> dict[str, list[int]]:
    """The points of each line of the rubrics, by question."""
    texts = "\n\n".join(c.source for c in cells(lab) if c.cell_type == "markdown")
    found = [part.split("\n\n")[0] for part in texts.split("*Rubric:*")[1:]]
    points = [list(map(int, re.findall(r"\((\d)\)", text))) for text in found]
    return dict(zip(manifest(lab)["written"], points, strict=True))


def samples(lab: str) -> dict[str, list[tuple[str, list[int], int, str]]]:
    """Level, points by line, sum and text of each sample, by question."""
    _, *parts = re.split(r"^## (\w+)\n", written(lab), flags=re.M)
    found = {}
    for question, part in zip(parts[::2], parts[1::2], strict=True):
        before, *rest = re.split(r"^### (\w+): ([\d +]+) = (\d)\n", part, flags=re.M)
        assert not before.strip()
        rows = zip(rest[::4], rest[1::4], rest[2::4], rest[3::4], strict=True)
        found[question] = [
            (level, list(map(int, terms.split(" + "))), int(total), text)
            for level, terms, total, text in rows
        ]
    return found


def written(lab: str) -> str:
    return (ROOT / "solutions" / lab / "written.md").read_text()


@pytest.mark.parametrize("lab", LABS)
def test_a_rubric_gives_the_points_of_its_question(lab):
    assert {name: sum(points) for name, points in rubrics(lab).items()} == manifest(lab)["written"]


@pytest.mark.parametrize("lab", LABS)
def test_every_question_has_three_samples_whose_points_follow_the_rubric(lab):
    most, found = rubrics(lab), samples(lab)
    assert list(found) == list(most)
    for question, rows in found.items():
        assert [level for level, *_ in rows] == LEVELS
        for level, points, total, _ in rows:
            place = f"{lab} {question} {level}"
            assert len(points) == len(most[question]), f"{place}: a number for each line"
            pairs = zip(points, most[question], strict=True)
            assert all(0 <= got <= line for got, line in pairs), place
            assert sum(points) == total, place
        full, half, low = (points for _, points, _, _ in rows)
        assert full == most[question]
        assert 0.4 * sum(full) <= sum(half) <= 0.6 * sum(full), f"{lab} {question}: about half"
        assert sum(low) <= 0.2 * sum(full), f"{lab} {question}: few or none"


@pytest.mark.parametrize("lab", LABS)
def test_a_sample_is_an_answer_with_one_sentence_why(lab):
    for question, rows in samples(lab).items():
        for level, _, _, text in rows:
            answer, why = text.split("*Why:* ")
            assert len(answer.split()) >= 25, f"{lab} {question} {level}: an answer, no note"
            assert "\n\n" not in why.strip(), f"{lab} {question} {level}: one sentence"
            assert re.fullmatch(r"[^.]+(\.\d[^.]*)*\.", why.strip()), f"{lab} {question} {level}"


@pytest.mark.parametrize("lab", LABS)
def test_students_and_the_site_get_neither_samples_nor_model_answers(lab):
    model = "\n".join(c.source for c in cells(lab) if "written" in c.metadata)
    lines = {line.strip() for line in f"{written(lab)}\n{model}".splitlines()}
    secret = {line for line in lines if len(line) >= LINE}
    for folder in (f"labs/{lab}", "course"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".md", ".ipynb", ".py", ".toml") and "_build" not in path.parts:
                text = path.read_text()
                assert not [line for line in secret if line in text], path
