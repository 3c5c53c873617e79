"""A figure that follows drop-down menus and sliders.

The figure is an output of its own, which every front end shows and a saved notebook keeps as it was
last seen. Below it stand the menus, where widgets are alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from efflib.lab.display import show_widget
from efflib.plots.style import bundle

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def explorer(
    draw: Callable[..., tuple[Figure, str]],
    options: dict[str, Sequence],
    alt: str = "",
    first: dict | None = None,
) -> None:
    """Display draw(**choice) under one menu per option; it redraws at every change.

    draw returns (figure, alt text).  options: {argument name: choices}, at first the first ones, or
    those of `first`.  Choices that are all float get a slider, others a drop-down menu.
    """
    import ipywidgets
    from IPython.display import display

    menus = {}
    for name, choices in options.items():
        numbers = all(isinstance(choice, float) for choice in choices)
        kind = ipywidgets.SelectionSlider if numbers else ipywidgets.Dropdown
        start = (first or {}).get(name, choices[0])
        menus[name] = kind(options=list(choices), description=name, value=start)

    def picture() -> dict[str, str]:
        fig, text = draw(**{name: menu.value for name, menu in menus.items()})
        return bundle(fig, alt or text)

    handle = display(picture(), raw=True, display_id=True)
    for menu in menus.values():
        menu.observe(lambda change: handle.update(picture(), raw=True), names="value")
    show_widget(ipywidgets.HBox(list(menus.values())))
