"""What this course sets of nbgrader's: folders, stubs, feedback pages."""

import os
import re
import shutil
import sys
from pathlib import Path

from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
    SaveCells,
)
from traitlets.config import Config

from autograder.nbgrader.feedback import FeedbackExporter, Grades

COURSE_ID = "efficient-llm"


class NumberedStubs(ClearSolutions):
    """A solution becomes `raise NotImplementedError("Exercise 2")`, an answer a line of text."""

    def preprocess_cell(self, cell, resources, cell_index):
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        number = re.match(r"ex(\d+)", grade_id)
        name = f"Exercise {number[1]}" if number else grade_id
        self.code_stub = {"python": f'raise NotImplementedError("{name}")'}
        self.text_stub = "*Write your answer here.*"
        return super().preprocess_cell(cell, resources, cell_index)


def settings(config: Config) -> None:
    """Folders, stubs and feedback pages of this course."""
    course = config.CourseDirectory
    course.course_id = COURSE_ID
    course.source_directory = "build/source"  # made from solutions/ by `autograder release`
    course.release_directory = "labs"
    steps = [LockCells, NumberedStubs, ClearOutput, CheckCellMetadata, ComputeChecksums, SaveCells]
    steps += [ClearHiddenTests, ClearMarkScheme, ComputeChecksums, CheckCellMetadata]
    config.GenerateAssignment.preprocessors = steps
    config.GenerateFeedback.preprocessors = [Grades]
    config.GenerateFeedback.exporter_class = FeedbackExporter
    config.ExportApp.plugin_class = "autograder.nbgrader.export.InertCsv"
    config.GenerateFeedback.force = True  # pages are made anew whenever one asks for them
    if shutil.which("alembic") is None:  # nbgrader calls it by name to make a gradebook
        os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)
