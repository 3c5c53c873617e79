"""A figure that follows drop-down menus and sliders.

The notebook output holds both the live widget and the first figure as a plain image.  A front end
that can run widgets takes the widget; a printed page, a web view or a headless run the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from efflib.plots.style import to_html

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def explorer(
    draw: Callable[..., tuple[Figure, str]], options: dict[str, Sequence], alt: str = ""
) -> None:
    """Display draw(**choice) under one menu per option; it redraws at every change.

    draw returns (figure, alt text).  options: {argument name: choices}, at first the first ones.
    Choices that are all float get a slider, others a drop-down menu.
    """
    import ipywidgets
    from IPython.display import display

    menus = {}
    for name, choices in options.items():
        numbers = all(isinstance(choice, float) for choice in choices)
        kind = ipywidgets.SelectionSlider if numbers else ipywidgets.Dropdown
        menus[name] = kind(options=list(choices), description=name)
    fig, text = draw(**{name: menu.value for name, menu in menus.items()})
    first = to_html(fig, alt or text)
    image = ipywidgets.HTML(value=first)

    def redraw(change) -> None:
        image.value = to_html(*draw(**{name: menu.value for name, menu in menus.items()}))

    for menu in menus.values():
        menu.observe(redraw, names="value")
    box = ipywidgets.VBox([ipywidgets.HBox(list(menus.values())), image])
    bundle = box._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, "text/html": first, "text/plain": alt or text}, raw=True)
