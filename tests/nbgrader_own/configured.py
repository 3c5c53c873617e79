"""A pytest plugin: every nbgrader command of the run has this course's plug-in configured.

Only the names of the folders and of the course stay nbgrader's own, since its tests write to them.
"""

import pytest
from nbgrader.apps.baseapp import NbGrader
from traitlets.config import Config

from autograder.nbgrader.plugin import configure


@pytest.fixture(autouse=True)
def plug_in(monkeypatch):
    """Configures as nbgrader_config.py does, before the application reads its own files."""
    initialize = NbGrader.initialize

    def configured(app, *args, **kwargs):
        config = Config()
        configure(config)
        del config["CourseDirectory"]
        app.update_config(config)
        return initialize(app, *args, **kwargs)

    monkeypatch.setattr(NbGrader, "initialize", configured)
