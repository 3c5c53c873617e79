"""Student ids, and names of people as systems spell them.

`safe_id` gives every name an id.  What is an id already stays as it is.  From anything else, its
letters a-z and digits are kept (accents go, "Müller" is "muller") and ten hexadecimal digits of
the SHA-256 of the whole name are added, so that different names have different ids.  The id
depends on the name alone: the same name gives the same id in every lab and on every machine,
whether a system writes ü as one character or as two, and in capital or small letters.
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable

STUDENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
ID_RULE = "letters a-z, digits and . _ @ + - only, at most 64"
# how cells begin that spreadsheets compute, some of them in full width too
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
# where one begins, also for a program that takes another character for what parts cells, or trims
BEGINS = re.compile(r"(?:^|[,;|\t\r\n])(?:[^\S\t\r\n]|[\"\u200b\ufeff])*(?=[=+@＝＋－＠-])")
OF_NOBODY = re.compile(r"unclear-[0-9a-f]{10}", re.IGNORECASE)  # see `nobodys_id`
SLUG_CHARS = 40
HASH_CHARS = 10
SPELLED = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "å": "aa", "ø": "oe", "æ": "ae", "œ": "oe"}
)
STROKED = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe"})


def safe_id(name: str) -> str:
    """An id for any name; see the top of this file."""
    if STUDENT_ID.fullmatch(name) and not OF_NOBODY.fullmatch(name):
        return name
    slug = re.sub(r"[^a-z0-9]+", "-", without_accents(canonical(name)))
    slug = slug.strip("-")[:SLUG_CHARS].rstrip("-") or "student"
    return f"{slug}-{name_hash(name)}"


def nobodys_id(name: str) -> str:
    """For the row of what is no student's; `safe_id` makes no such id of anything."""
    return f"unclear-{name_hash(name)}"


def name_hash(name: str) -> str:
    data = canonical(name).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:HASH_CHARS]


def inert(text: str) -> str:
    """A cell of a CSV file that no spreadsheet takes for a formula, or for several cells."""
    text = BEGINS.sub(lambda begin: begin[0] + "'", text)
    return f"'{text}" if text.startswith(FORMULA) else text


def canonical(name: str) -> str:
    """Equal for spellings of one name that only computers tell apart."""
    name = unicodedata.normalize("NFC", name).casefold()
    return " ".join(unicodedata.normalize("NFC", name).split())


def without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.translate(STROKED))
    return "".join(c for c in parts if not unicodedata.combining(c))


def words(name: str) -> tuple[str, ...]:
    """The words of a name, in order: "O'Hara, Anna" -> o, hara, anna."""
    kept = (c if unicodedata.category(c)[0] in "LNM" else " " for c in canonical(name))
    return tuple("".join(kept).split())  # M: the vowels of राम and रोम are marks


@functools.lru_cache(100_000)
def exact_key(name: str) -> tuple[str, ...]:
    """Equal for "Müller, Anna", "anna müller" and "Anna_Müller"."""
    return tuple(sorted(words(name)))


def alike(one: str, other: str) -> bool:
    """Whether two names may be spellings of one: "muelleranna" and "Anna Müller" are.

    One of them may have lost accents or letters on its way, not both: Anna Müller is not Anna
    Möller, although a system that leaves out ü and ö calls both mlleranna.
    """
    return bool(full_keys(one) & loose_keys(other) or loose_keys(one) & full_keys(other))


@functools.lru_cache(100_000)
def full_keys(name: str) -> frozenset[str]:
    """Words run together, with any of them first; as they are, and with accents spelled out."""
    return run_together(words(name)) | run_together(w.translate(SPELLED) for w in words(name))


@functools.lru_cache(100_000)
def loose_keys(name: str) -> frozenset[str]:
    """The same, also with accents taken off, or the letter with them left out.

    Systems do that which keep to ASCII.
    """
    lost = (map(spelled, words(name)) for spelled in (without_accents, ascii_only))
    return full_keys(name).union(*map(run_together, lost))


def run_together(parts: Iterable[str]) -> frozenset[str]:
    parts = tuple(parts)
    return frozenset(filter(None, ("".join(parts[k:] + parts[:k]) for k in range(len(parts)))))


def ascii_only(text: str) -> str:
    return "".join(c for c in text if c.isascii())
