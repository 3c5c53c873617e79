"""Small zips that would unpack to a great deal: never more than the cap leaves the unpacker."""

import io
import resource
import struct
import subprocess
import sys
import zipfile

import pytest
from handed_in import GOOD, reason, rows, zipped
from toylab import write

from autograder.intake import archive, choose
from autograder.intake.archive import EntryError, unzip
from autograder.intake.discover import Rejected, Submission

MB = 1_000_000


def packed(method: int, content: bytes = b"\0" * (200 * MB)) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as made:
        made.writestr("toy.ipynb", content)
    return data.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_only_stored_and_deflated_members_are_unpacked(tmp_path, method):
    write(tmp_path / "alice.zip", packed(method, GOOD))
    write(tmp_path / "bob.zip", packed(zipfile.ZIP_STORED, GOOD))
    assert "zip it again" in reason(tmp_path)
    assert isinstance(rows(tmp_path)["bob"], Submission)


READ = """
import pathlib, re, sys
from autograder.intake.archive import EntryError, unzip
def peak():  # of this process alone; getrusage would begin with its parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
[entry] = unzip(pathlib.Path(sys.argv[1]), "x.zip")
used = peak()
try:
    entry.read(20_000_000)
except EntryError:
    print(peak() - used)
"""


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED], ids=str
)
@pytest.mark.parametrize("honest", [True, False], ids=["size told", "size forged"])
def test_memory_stays_within_the_cap(tmp_path, method, honest):
    """200 MB of zeros, capped at 20 MB: with bzip2 and lzma, all of it would come at once."""
    data = bytearray(packed(method))
    if not honest:  # the size in the table of contents, which comes before the expansion
        struct.pack_into("<L", data, data.index(b"PK\x01\x02") + 24, 19 * MB)
    path = write(tmp_path / "bomb.zip", bytes(data))
    run = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) * 1024 < 60 * MB


def test_a_size_that_is_told_is_believed_before_anything_is_unpacked(monkeypatch):
    [entry] = unzip(packed(zipfile.ZIP_DEFLATED), "x.zip")
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(EntryError, match="larger than 20 MB"):
        entry.read(20 * MB)


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_all_entries_of_a_student_share_one_cap(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(choose, "MAX_STUDENT_BYTES", 5 * len(GOOD) // 2)
    files = {f"{name}.ipynb": GOOD for name in "abcd"}
    if packed:
        write(tmp_path / "alice.zip", zipped(files))
    else:
        for name in files:
            write(tmp_path / "alice" / name, GOOD)
    came, real = [], archive.capped
    monkeypatch.setattr(archive, "capped", lambda *a: came.append(real(*a)) or came[-1])
    row = rows(tmp_path)["alice"]
    assert isinstance(row, Submission), "four equal notebooks, of which two could be read"
    zips = [data for data in came if data.startswith(b"PK")]  # once more for the names in it
    assert len(zips) == 2 * packed and len(set(zips)) == packed
    assert 0 < sum(map(len, came)) - sum(map(len, zips[1:])) <= choose.MAX_STUDENT_BYTES


def test_zips_in_a_zip_one_level_deep(tmp_path):
    inner = zipped({"toy.ipynb": GOOD})
    write(tmp_path / "all.zip", zipped({"alice.zip": inner, "bob.zip": zipped({"a.zip": inner})}))
    found = rows(tmp_path / "all.zip")
    assert isinstance(found["alice"], Submission)
    assert isinstance(found["bob"], Rejected) and "no notebook" in found["bob"].reason


def test_a_table_of_contents_cannot_fill_the_memory():
    """A million entries of 47 bytes would become a million objects."""
    numbers = [20, 0, 20, 0] + [0] * 7 + [1] + [0] * 6  # one character of name
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", *numbers)
    count = 1_000_000
    table = (entry + b"a") * count
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(table), 0, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EntryError, match="table of contents"):
        list(unzip(table + end, "x.zip"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
