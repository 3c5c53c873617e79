"""Where something can be shown: as HTML or as a widget in Jupyter, as text elsewhere."""

import os
import time

FRESH_SECONDS = 20
# JupyterLab calls an output's node `element`, puts it into the page after the script has run, and
# goes to the last cell when all have been run
SCROLL = """if (Date.now() < %d && typeof element !== "undefined") {
  const show = () => {
    const cell = element.closest && element.closest(".jp-Cell");
    if (cell) cell.scrollIntoView({block: "start"});
  };
  [300, 1000, 2500].forEach((ms) => setTimeout(show, ms));
}"""


def in_sandbox() -> bool:
    """True inside the grader's sandbox, where nothing is shown and nothing is checked."""
    return os.environ.get("EFFLIB_SANDBOX") == "1"


def in_notebook() -> bool:
    """True if this process is a Jupyter kernel."""
    try:
        shell = get_ipython()  # noqa: F821 - IPython puts it among the builtins
    except NameError:
        return False
    return hasattr(shell, "kernel")


def show(text: str, html: str) -> None:
    """Show the HTML or the text: what the front end can; print the text elsewhere."""
    if not in_notebook():
        print(text)
        return
    from IPython.display import display

    display({"text/html": html, "text/plain": text}, raw=True)


def bring_into_view() -> None:
    """Scroll a browser's notebook to the cell that runs: "Run All" leaves the view at its end.

    Only now: a notebook that is opened again later stays where it is.
    """
    if not in_notebook():
        return
    from IPython.display import display

    until = round(1000 * (time.time() + FRESH_SECONDS))
    display({"application/javascript": SCROLL % until, "text/plain": ""}, raw=True)


def show_widget(widget) -> None:
    """Show a live widget, and nothing where widgets are not alive."""
    from IPython.display import display

    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, "text/plain": ""}, raw=True)
