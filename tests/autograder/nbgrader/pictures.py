"""Outputs for notebooks that are handed in: a sound picture, and outputs that attack a page."""

import base64
import struct
import zlib

import nbformat
from payloads import PAYLOADS


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def png(grey: int = 127, stated: tuple[int, int] = (2, 2)) -> str:
    """A picture of 2 x 2 points as base64, whatever size it states."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *stated, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes([0, grey, grey]) * 2))
    data = b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def display(**data) -> nbformat.NotebookNode:
    """A display_data output; text_html stands for text/html."""
    return nbformat.v4.new_output(
        "display_data", data={key.replace("_", "/", 1): value for key, value in data.items()}
    )


def stream(text: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def attacks() -> list[nbformat.NotebookNode]:
    """Every payload as every kind of output, and pictures that are none."""
    made = []
    for text in PAYLOADS:
        error = nbformat.v4.new_output("error", ename=text, evalue=text, traceback=[text])
        junk = base64.b64encode(text.encode()).decode()
        made += [stream(text), error, display(text_html=text), display(text_plain=text)]
        made += [display(image_png=text), display(image_png=junk), display(text_markdown=text)]
        made += [display(**{"image_svg+xml": text}), display(text_latex=text)]
        made += [display(application_javascript=text, text_plain=text)]
    bomb = png(stated=(2**31 - 1, 2**31 - 1))
    quoted = png() + '"><script>alert(1)</script>'
    return [display(image_png=data) for data in (bomb, quoted)] + made
