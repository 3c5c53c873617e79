"""The gradebook in PostgreSQL: POSTGRES_URL names an empty database, for example
postgresql+psycopg://user@host/gradebook (extra `postgres`)."""

import os
import sys
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "autograder" / "nbgrader"))
import nbcourse  # noqa: E402

from autograder.nbgrader.course import course_directory  # noqa: E402
from autograder.nbgrader.release import release  # noqa: E402

URL = os.environ.get("POSTGRES_URL")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not URL, reason="POSTGRES_URL is not set"),
]


def test_release_grades_and_feedback_use_the_configured_database(tmp_path):
    root = nbcourse.make_course(tmp_path)
    settings = (ROOT / "nbgrader_config.py").read_text()
    setting = f"c.CourseDirectory.db_url = {URL!r}\n"
    nbcourse.write(root / "nbgrader_config.py", f"{settings}\n{setting}")
    release(root)
    lab = nbcourse.load(root)
    row = nbcourse.submission(lab, nbcourse.right(lab))
    other, refused = nbcourse.rejected(lab, "bob", "no notebook")
    results = [nbcourse.graded(lab, row, ("test_clip_bounds",)), refused]
    for _ in range(2):
        nbcourse.record(root, lab, results, [row, other])
    assert course_directory(root).db_url == URL and not (root / "gradebook.db").exists()
    with Gradebook(URL, "efficient-llm") as gradebook:
        found = {s.student.id: s.score for s in gradebook.assignment_submissions(lab.name)}
    assert found == {"ada": 65, "bob": 0}
    assert "65 of 100" in (root / "feedback" / "ada" / lab.name / "toy.html").read_text()
