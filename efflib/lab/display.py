"""Where something can be shown: as HTML or as a widget in Jupyter, as text elsewhere."""

import os


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


def show_widget(widget) -> None:
    """Show a live widget, and nothing where widgets are not alive."""
    from IPython.display import display

    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, "text/plain": ""}, raw=True)
