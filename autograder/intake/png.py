"""Takes a PNG of unknown origin apart and puts the part that holds pixels together again."""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")  # no text, no colour profile, no other chunk
MAX_SIDE = 8_000
MAX_PIXELS = 4_000_000
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a colour type
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
FILTERS = 4  # the largest number that a row may start with


class Picture(NamedTuple):
    data: bytes
    pixels: int


def sound_png(data: bytes, most_pixels: int = MAX_PIXELS) -> Picture | None:
    """The same picture without anything beside its pixels, or None if it is not sound.

    Sound: every chunk's checksum holds, the stated size is within the limits, and the pixels
    unpack to that size; so no decoder is asked for more memory than the size states.
    """
    try:
        chunks = [(kind, body) for kind, body in chunks_of(data) if kind in KEPT]
        row, height, pixels = geometry(chunks[0], min(most_pixels, MAX_PIXELS))
        packed = b"".join(body for kind, body in chunks if kind == b"IDAT")
        headers = sum(kind == b"IHDR" for kind, _ in chunks)
        if headers != 1 or chunks[-1] != (b"IEND", b"") or not unpacks(packed, row, height):
            return None
    except (ValueError, IndexError, struct.error, zlib.error):
        return None
    return Picture(SIGNATURE + b"".join(chunk(kind, body) for kind, body in chunks), pixels)


def chunks_of(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(kind, content) up to IEND; what follows it is left behind. Raises ValueError."""
    if not data.startswith(SIGNATURE):
        raise ValueError("no PNG")
    at = len(SIGNATURE)
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        if checksum != zlib.crc32(kind + body):
            raise ValueError("damaged")
        yield kind, body
        if kind == b"IEND":
            return
        at += 12 + length


def geometry(first: tuple[bytes, bytes], most_pixels: int) -> tuple[int, int, int]:
    """(bytes of a row, rows, pixels) that the header states. Raises ValueError."""
    kind, body = first
    width, height, depth, colour, packing, filtering, interlaced = struct.unpack(">IIBBBBB", body)
    if kind != b"IHDR" or depth not in DEPTHS.get(colour, ()) or packing or filtering or interlaced:
        raise ValueError("a kind of PNG that no plot has")
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= most_pixels):
        raise ValueError("too large")
    return 1 + (width * depth * CHANNELS[colour] + 7) // 8, height, width * height


def unpacks(packed: bytes, row: int, height: int) -> bool:
    """Whether the pixels fill the stated size exactly; never unpacks more than that."""
    stream = zlib.decompressobj()
    pixels = stream.decompress(packed, row * height + 1)
    return len(pixels) == row * height and max(pixels[::row]) <= FILTERS


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
