"""Files of a folder or of a zip, named and read without trusting either.

Both give `Entry`s: a path split into parts, and a function that reads at most `limit` bytes.
Nothing is ever unpacked to disk, no link is followed.
"""

import io
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_DEPTH = 12
MAX_ENTRIES = 20_000
TABLE_BYTES = 500  # of a zip's table of contents, for each entry that it may have
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SKIPPED = {"__MACOSX", "__pycache__"}
# by Moodle, Blackboard, or after a person who is ". Suharto" there
NAMED = re.compile(r"\. |\.(?!_).*(_assignsubmission_|_attempt_\d{4}-)")


class EntryError(Exception):
    """A file that must not or cannot be read; the text is for the student."""


@dataclass(frozen=True)
class Entry:
    """Something below the root: `parts` is its path there."""

    parts: tuple[str, ...]
    kind: str  # "file" | "folder" | "other" (a link, a device, an entry that leaves its folder)
    read: Callable[[int], bytes]  # limit in bytes -> content; raises EntryError

    @property
    def name(self) -> str:
        return shown("/".join(self.parts))


def shown(name: str) -> str:
    """A file name for a message: one line of at most 80 characters that all can be shown."""
    plain = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in name)
    return plain if len(plain) <= 80 else plain[:77] + "..."


def other(parts: tuple[str, ...], reason: str) -> Entry:
    """An entry that is there, but whose reading fails with this reason."""

    def read(limit: int) -> bytes:
        raise EntryError(reason)

    return Entry(parts, "other", read)


def is_zip(entry: Entry) -> bool:
    return entry.kind == "file" and entry.parts[-1].lower().endswith(".zip")


def is_notebook(entry: Entry) -> bool:
    return entry.kind != "folder" and entry.parts[-1].lower().endswith(".ipynb")


def skipped(part: str) -> bool:
    """Hidden files, and what macOS and Python leave behind.

    People with one name only are often ". Suharto" to Moodle: what a system named is not hidden.
    """
    hidden = part.startswith(".") and part != ".." and not NAMED.match(part)
    return part in SKIPPED or hidden


def capped(file: BinaryIO, limit: int, name: str) -> bytes:
    """Reads a stream to its end, but never more than limit + 1 bytes of it."""
    data = file.read(limit + 1)
    if len(data) > limit:
        raise too_large(name, limit)
    return data


def too_large(name: str, limit: int) -> EntryError:
    return EntryError(f"{shown(name)} is larger than {limit / 1e6:.3g} MB")


# ---- folders ------------------------------------------------------------------------------------


def walk(root: Path, parts: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Entries below a folder, in the order of their names."""
    folder = root.joinpath(*parts)
    try:
        names = sorted(name for name in os.listdir(folder) if not skipped(name))
    except OSError as error:
        yield other(parts or ("",), f"the folder cannot be read ({error.strerror})")
        return
    for name in names:
        path, below = folder / name, (*parts, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            yield Entry(below, "folder", other(below, f"{shown(name)} is a folder").read)
            if len(below) < MAX_DEPTH:
                yield from walk(root, below)
        elif stat.S_ISREG(mode):
            yield file_entry(path, below)
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
            yield other(below, f"{shown(name)} is {kind}: hand in the file itself")


def file_entry(path: Path, parts: tuple[str, ...]) -> Entry:
    return Entry(parts, "file", lambda limit: read_file(path, limit))


def read_file(path: Path, limit: int) -> bytes:
    """Content of a regular file that is not a link (checked again on the open file)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise EntryError(f"{shown(path.name)} is not a regular file")
        with open(descriptor, "rb") as file:
            return capped(file, limit, path.name)
    except OSError as error:
        raise EntryError(f"{shown(path.name)} cannot be read ({error.strerror})") from None


# ---- zip archives -------------------------------------------------------------------------------


def unzip(source: Path | bytes, name: str, most: int = MAX_ENTRIES) -> Iterator[Entry]:
    """Entries of a zip, given by path or content. Raises EntryError if it is no sound zip."""
    try:
        file = io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")
        archive = open_zip(file, most * TABLE_BYTES)
        members = sorted(archive.infolist(), key=lambda member: member.filename)
    except EntryError as error:
        raise EntryError(f"{shown(name)} {error}") from None
    except Exception:  # hostile bytes: zipfile raises many kinds besides BadZipFile
        raise EntryError(f"{shown(name)} is not a zip archive that can be read") from None
    if len(members) > most:
        raise EntryError(f"{shown(name)} holds {len(members)} files, more than {most}")
    for member in members:
        path = member.filename.replace("\\", "/").removesuffix("/")
        parts = tuple(part for part in path.split("/") if part != ".")
        if parts and not any(map(skipped, parts)):
            yield zip_entry(archive, member, parts)


def open_zip(file: BinaryIO, most: int) -> zipfile.ZipFile:
    """The archive, unless its table of contents alone would fill the memory.

    zipfile makes an object of a few hundred bytes from each entry of that table, which can take 46.
    """
    table = zipfile._EndRecData(file)  # what ZipFile itself goes by when it reads the table
    if table and table[zipfile._ECD_SIZE] > most:
        raise EntryError(f"has a table of contents of more than {most // 10**6} MB")
    return zipfile.ZipFile(file)


def zip_entry(archive: zipfile.ZipFile, member: zipfile.ZipInfo, parts: tuple) -> Entry:
    where = shown(member.filename)
    if parts[0] == "" or ".." in parts or ":" in parts[0]:
        return other(parts, f"the archive has an entry that leaves its folder: {where}")
    if member.is_dir():
        return Entry(parts, "folder", other(parts, f"{where} is a folder").read)
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return other(parts, f"{where} is a link or a device: hand in the file itself")

    if member.compress_type not in METHODS:
        # bzip2 and lzma give all they have at once: a few bytes can become gigabytes
        reason = f"{where} is packed in a way that is not accepted: zip it again as usual (deflate)"
        return other(parts, reason)

    def read(limit: int) -> bytes:
        if member.file_size > limit:  # as the archive says; `capped` counts what really comes
            raise too_large(where, limit)
        try:
            with archive.open(member) as file:
                return capped(file, limit, where)
        except EntryError:
            raise
        except Exception as error:  # damaged, encrypted, an unknown method: zlib, lzma, struct, ...
            kind = type(error).__name__
            raise EntryError(f"{where} cannot be unpacked ({kind}): zip it again") from None

    return Entry(parts, "file", read)
