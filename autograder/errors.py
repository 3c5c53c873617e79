"""Errors that are told in one line, because arguments, files or the disk can be mended."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UsageError(Exception):
    """A command was called with arguments that do not fit."""


class StorageError(Exception):
    """A file of the course cannot be read or written; the text names it and the remedy."""


FULL = "the disk is full: make room there"
NOT_ALLOWED = "you may not write it: change its permissions, or grade a copy of the course"
REMEDIES = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: "your share of the disk is used up: make room there",
    errno.EROFS: "the file system is read-only: grade a copy of the course elsewhere",
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EEXIST: "a file stands where a folder belongs: move it away",
    errno.ENOTDIR: "a file stands where a folder belongs: move it away",
    errno.EISDIR: "a folder stands where a file belongs: move it away",
}


def file_trouble(error: OSError, path: Path | None = None) -> str:
    """Which file cannot be used, why, and what helps; path: for an error that names none."""
    where = error.filename or path
    what = REMEDIES.get(error.errno) or error.strerror or type(error).__name__
    return f"{where}: {what}" if where else what


@contextmanager
def files_told(path: Path | None = None) -> Iterator[None]:
    """An error of the file system becomes a StorageError with its sentence."""
    try:
        yield
    except OSError as error:
        raise StorageError(file_trouble(error, path)) from error
