"""Outputs that were handed in: text and sound PNG pictures stay, nothing else, and not too much."""

import base64
import io
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.intake import outputs
from autograder.intake.notebook import notebook_digest, parse_notebook
from autograder.intake.outputs import LEFT_OUT, MAX_ALL, MAX_TEXT, Output, kept_outputs
from autograder.intake.png import MAX_PIXELS, SIGNATURE, chunk, chunks_of, sound_png


def png(width=4, height=3, rows=None, colour=2, extra=b"", header=None):
    """A PNG of one colour; rows: how many it holds, header: what it states instead."""
    row = b"\0" + b"\x7f" * width * {0: 1, 2: 3, 6: 4}[colour]
    packed = zlib.compress(row * (height if rows is None else rows))
    stated = struct.pack(">IIBBBBB", *(header or (width, height)), 8, colour, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", stated) + extra + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def shown(data, key="image/png", **more):
    if isinstance(data, bytes):
        data = base64.b64encode(data).decode()
    return {"output_type": "display_data", "data": {key: data} | more, "metadata": {}}


def kept(*raw):
    return kept_outputs([{"cell_type": "code", "outputs": list(raw)}])[0]


def pictures(*raw):
    return [base64.b64decode(item.text) for item in kept(*raw) if item.kind == "picture"]


def test_a_plot_comes_back_pixel_by_pixel():
    pytest.importorskip("matplotlib")
    import matplotlib.image
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3))
    figure.subplots().plot([1, 2, 3])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    [again] = pictures(shown(buffer.getvalue()))
    first, second = (matplotlib.image.imread(io.BytesIO(b)) for b in (buffer.getvalue(), again))
    assert first.shape == (300, 400, 4) and (first == second).all()
    assert b"matplotlib" in buffer.getvalue() and b"matplotlib" not in again


def test_nothing_but_pixels_stays_in_a_picture():
    hidden = b"<script>alert(1)</script>"
    for extra in (b"tEXt", b"iCCP", b"zTXt", b"eXIf", b"acTL", b"scrp"):
        data = png(extra=chunk(extra, b"key\0" + hidden)) + hidden
        assert pictures(shown(data)) == [png()]


UNSOUND = {
    "html": b"<html><script>alert(1)</script>",
    "html behind a signature": SIGNATURE + b"<html><script>alert(1)</script>",
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(100),
    "gif": b"GIF89a" + bytes(100),
    "empty": b"",
    "signature only": SIGNATURE,
    "cut": png()[:-20],
    "damaged": png()[:45] + b"x" + png()[46:],
    "no end": png()[:-12],
    "huge in its header": png(header=(2**31 - 1, 2**31 - 1)),
    "too wide": png(header=(60_000, 1)),
    "too many pixels": png(header=(4_000, 4_000)),
    "no size": png(header=(0, 3)),
    "less than it states": png(rows=2),
    "more than it states": png(rows=4),
    "a bomb": png(rows=10_000_000),
    "two headers": png(extra=chunk(b"IHDR", struct.pack(">IIBBBBB", 9999, 9999, 8, 2, 0, 0, 0))),
    "interlaced": SIGNATURE
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 1))
    + chunk(b"IDAT", zlib.compress(b"\0\0"))
    + chunk(b"IEND", b""),
}


@pytest.mark.parametrize("data", UNSOUND.values(), ids=UNSOUND)
def test_what_is_no_sound_picture_is_left_out(data):
    assert kept(shown(data)) == (Output("text", LEFT_OUT),)


@pytest.mark.parametrize("text", ["!!!", "iVBORw0KGgo", "é" * 8, " ", 7, None, {"a": 1}, [1, 2]])
def test_junk_for_base64_is_left_out(text):
    assert kept(shown(text)) == (Output("text", LEFT_OUT),)


def test_base64_in_lines_is_understood():
    text = base64.encodebytes(png()).decode()
    assert pictures(shown(text)) == pictures(shown(text.splitlines(True))) == [png()]


KINDS = ["text/html", "image/svg+xml", "application/javascript", "text/latex", "image/jpeg"]
KINDS += ["application/vnd.jupyter.widget-view+json", "text/markdown", "application/pdf"]


@pytest.mark.parametrize("key", KINDS)
def test_other_kinds_are_left_out_and_their_plain_text_is_kept(key):
    assert kept(shown("<b>x</b>", key)) == (Output("text", LEFT_OUT),)
    both = shown("<b>x</b>", key, **{"text/plain": "<Figure>"})
    assert kept(both) == (Output("result", "<Figure>"),)


def test_text_results_and_errors_are_kept_as_plain_text():
    stream = {"output_type": "stream", "name": "stdout", "text": ["a\n", "\x1b[31mred\x1b[0m\n"]}
    bar = stream | {"text": " 10 %\r 99 %\r100 %\r\nend\x00\u202e"}
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["<b>"]}
    result = {"output_type": "execute_result", "data": {"text/plain": "7"}, "execution_count": 1}
    assert kept(stream, bar, error, result) == (
        Output("text", "a\nred\n"),
        Output("text", "100 %\nend"),
        Output("error", "ValueError: no"),
        Output("result", "7"),
    )


def test_everything_is_capped():
    long = {"output_type": "stream", "text": "x" * 10**7}
    [output] = kept(long)
    assert output.text == "x" * MAX_TEXT + " ... (cut)"
    assert len(kept(*[long] * 500)) == outputs.MAX_OF_CELL + 1
    cells = [{"outputs": [long] * 20}] * 100
    assert sum(len(o.text) for cell in kept_outputs(cells) for o in cell) < MAX_ALL + 10_000
    large = shown(png(2_000, 1_500))
    assert 2_000 * 1_500 <= MAX_PIXELS
    assert len(pictures(*[large] * 20)) == outputs.MAX_PIXELS // (2_000 * 1_500)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["output_type", "data", "text", "image/png", "text/plain", "ename"])
            | st.text(max_size=3),
            inner | st.sampled_from(["stream", "display_data", "error", "execute_result"]),
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_json_is_survived(value):
    for cell in (value, {"outputs": value}, {"outputs": [value]}):
        [found] = kept_outputs([cell])
        assert all(isinstance(output, Output) for output in found)


@given(st.binary(max_size=60), st.integers(0, len(png())))
def test_any_bytes_are_survived(noise, at):
    whole = png()
    for data in (noise, SIGNATURE + noise, whole[:at] + noise + whole[at:]):
        sound = sound_png(data)
        assert sound is None or [kind for kind, _ in chunks_of(sound.data)][0] == b"IHDR"


def test_outputs_decide_nothing():
    """The digest names what is graded: printing something else is no other submission."""
    cell = {"cell_type": "code", "source": "1", "metadata": {}}
    stream = {"output_type": "stream", "name": "stdout", "text": "hello"}
    bare, shown_too = (
        parse_notebook(json.dumps({"cells": [cell | {"outputs": out}]}).encode())
        for out in ([], [stream])
    )
    assert shown_too[0].outputs == (Output("text", "hello"),) and bare[0].outputs == ()
    assert notebook_digest(bare) == notebook_digest(shown_too) and bare == shown_too
