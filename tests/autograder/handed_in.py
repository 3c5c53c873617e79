"""What the tests of the intake share: rows of a folder, zips with any content."""

import io
import json
import stat
import zipfile
from types import SimpleNamespace

from toylab import NAME, answered

from autograder.intake.discover import Rejected, discover

LAB = SimpleNamespace(name=NAME, exercises={"ex1": None, "ex2": None}, written={"w1": 10})
GOOD = json.dumps(answered()).encode()


def rows(path):
    found = discover(path, LAB)
    assert len({row.student for row in found}) == len(found), "two rows for one student"
    return {row.student: row for row in found}


def reason(path, student="alice"):
    row = rows(path)[student]
    assert isinstance(row, Rejected), "it was accepted"
    return row.reason


def zipped(files, **options):
    """Bytes of a zip; a value is content, or (content, unix mode)."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, value in files.items():
            content, mode = value if isinstance(value, tuple) else (value, stat.S_IFREG | 0o644)
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return data.getvalue()
