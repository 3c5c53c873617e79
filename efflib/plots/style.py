"""One look for all figures, safe for colour-blind readers, and a text for those who see none.

Palette: Okabe and Ito (2008), "Color Universal Design", jfly.uni-koeln.de/color.  A figure is
shown as an HTML image and not left to the notebook's own PNG output, because JupyterLab has no
place for an alt text there.
"""

from __future__ import annotations

import base64
import html
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # matplotlib is loaded by the first figure: importing these modules costs nothing
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, AMBER, GREY, BLACK = "#56B4E9", "#E69F00", "#7F7F7F", "#000000"
COLOURS = [BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER]
MARKERS = ["o", "s", "^", "D", "v", "P"]
DIVERGING = "PuOr"  # signed values: both ends stay apart in every common colour blindness
DPI = 100
CHARACTERS_PER_INCH = 12  # of the default font at 11 points


def figure(columns: int = 1, width: float = 7.0, height: float = 3.4) -> tuple[Figure, list]:
    """(figure, list of its axes side by side); width and height in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    axes = list(fig.subplots(1, columns, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return fig, axes


def title(fig: Figure, text: str, size: float = 11) -> None:
    """A title over the whole figure, broken into lines that fit its width."""
    characters = int(fig.get_figwidth() * CHARACTERS_PER_INCH * 11 / size)
    fig.suptitle(textwrap.fill(text, characters), fontsize=size)


def number(value: float) -> str:
    """Three digits as one reads them: 2,360 and 17.3 and 0.042."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def to_html(fig: Figure, alt: str) -> str:
    """An <img> element that holds the figure as PNG and the alt text."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=DPI)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'


def show(fig: Figure, alt: str) -> None:
    """Display the figure in a notebook; where images cannot be shown, the alt text stands."""
    from IPython.display import display

    display({"text/html": to_html(fig, alt), "text/plain": alt}, raw=True)


def save(fig: Figure, path: Path, alt: str) -> None:
    """Write the figure as SVG, the same bytes for the same figure.  Makes missing folders."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        fig.savefig(path, format="svg", metadata={"Title": alt, "Date": None})
