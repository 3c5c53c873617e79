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

STUDENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
ID_RULE = "letters a-z, digits and . _ @ + - only, at most 64"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how cells begin that spreadsheets compute
SLUG_CHARS = 40
HASH_CHARS = 10
WORD = re.compile(r"[^\W_]+")
SPELLED = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "å": "aa", "ø": "oe", "æ": "ae", "œ": "oe"}
)
STROKED = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe"})


def safe_id(name: str) -> str:
    """An id for any name; see the top of this file."""
    if STUDENT_ID.fullmatch(name):
        return name
    slug = re.sub(r"[^a-z0-9]+", "-", without_accents(canonical(name)))
    slug = slug.strip("-")[:SLUG_CHARS].rstrip("-") or "student"
    return f"{slug}-{name_hash(name)}"


def name_hash(name: str) -> str:
    data = canonical(name).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:HASH_CHARS]


def inert(text: str) -> str:
    """A cell of a CSV file that no spreadsheet takes for a formula."""
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
    return tuple(WORD.findall(canonical(name)))


@functools.lru_cache(100_000)
def exact_key(name: str) -> tuple[str, ...]:
    """Equal for "Müller, Anna", "anna müller" and "Anna_Müller"."""
    return tuple(sorted(words(name)))


@functools.lru_cache(100_000)
def loose_keys(name: str) -> frozenset[str]:
    """Two names that share one may be the same: "muelleranna" and "Anna Müller" do.

    Words run together, with any of them first; accents spelled out, taken off, or the letter with
    them left out, as systems do that keep to ASCII.
    """
    keys = set()
    for spelled in (lambda w: w, lambda w: w.translate(SPELLED), without_accents, ascii_only):
        parts = [spelled(word) for word in words(name)]
        keys |= {"".join(parts[k:] + parts[:k]) for k in range(len(parts))}
    return frozenset(filter(None, keys))


def ascii_only(text: str) -> str:
    return "".join(c for c in text if c.isascii())
