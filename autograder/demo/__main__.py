"""`python -m autograder.demo [LAB]`: releases a lab, lets a class of thirteen hand in, grades it.

Everything happens in build/demo, a course folder of its own: nothing of the real course is touched.
"""

import argparse
import shutil
import sys
from pathlib import Path

from autograder.commands.grade import grade_class
from autograder.demo.make_class import STUDENTS, make_class, surprises
from autograder.labs.manifest import lab_names, load_lab
from autograder.nbgrader.release import generate

ROOT = Path(__file__).parents[2]
MADE = ("labs", "submitted", "autograded", "feedback", "marking")
LOOK = """
Look at (all below {demo}):
  labs/{lab}/             what students get
  submitted/<student>/                   what they handed in
  feedback/<student>/{lab}/   what they get back (HTML), also the rejected one
  autograded/<student>/{lab}/ what formgrader shows
  marking/{lab}/          each written question with all answers of the class
  gradebook.db, grades.csv               nbgrader's gradebook, and its export

Go on by hand:
  make formgrader COURSE={demo}           JupyterLab in that folder; its menu Nbgrader > Formgrader
                                         is where the written questions are graded
  cd {demo}
  {bin}/nbgrader autograde {lab} --force
  {bin}/nbgrader generate_feedback {lab}
  {bin}/nbgrader export
"""


def main() -> int:
    """Exit code: 0 if every student got what make_class.expected_failures says."""
    parser = argparse.ArgumentParser(prog="python -m autograder.demo", description=__doc__)
    labs = lab_names(ROOT)
    parser.add_argument("lab", nargs="?", choices=labs, default=labs[0], metavar="LAB")
    lab = parser.parse_args().lab
    demo = ROOT / "build" / "demo"
    course = fresh_course(demo, lab)
    make_class(course, lab, course / "submitted")
    print(f"{len(STUDENTS)} students handed in {lab}:")
    for student, hand_in in STUDENTS.items():
        print(f"  {student:16s}{hand_in.__doc__}")
    results = grade_class(course, lab, course / "submitted")
    export(course)
    shown = demo.relative_to(Path.cwd()) if demo.is_relative_to(Path.cwd()) else demo
    print(LOOK.format(demo=shown, lab=lab, bin=Path(sys.executable).parent))
    wrong = surprises(load_lab(lab, course), results)
    print("\n".join(wrong) or "Every student got what this class is meant to get.")
    return 1 if wrong else 0


def fresh_course(demo: Path, lab: str) -> Path:
    """The course folder without an earlier class; stored results of grading stay."""
    for name in MADE:
        shutil.rmtree(demo / name, ignore_errors=True)
    (demo / "gradebook.db").unlink(missing_ok=True)
    demo.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "nbgrader_config.py", demo)
    generate(ROOT, lab, demo)
    return demo


def export(course: Path) -> None:
    """What `nbgrader export` does."""
    from nbgrader.api import Gradebook
    from nbgrader.plugins import CsvExportPlugin

    from autograder.nbgrader.course import course_directory

    coursedir = course_directory(course)
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        CsvExportPlugin(to=str(course / "grades.csv")).export(gradebook)


if __name__ == "__main__":
    sys.exit(main())
