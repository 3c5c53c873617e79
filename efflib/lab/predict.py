"""Predictions: a question before the exercise, compared with what the student then finds.

Nothing here blocks or fails: without a front end the question is printed and may stay unanswered.
"""

from dataclasses import dataclass
from html import escape

from efflib.lab.display import in_notebook, show

LEAST_RATIO = 0.01  # of a prediction to the result that is told; beyond, it says little


@dataclass
class Prediction:
    """A question and its answer: `value` is None until the student answers."""

    key: str
    question: str = ""
    options: tuple[str, ...] = ()
    unit: str = ""
    value: object = None

    def _ipython_display_(self) -> None:
        """Nothing: `lab.predict(...)` has shown the question already."""


def ask(prediction: Prediction) -> None:
    """Show the question with a widget, or as text that says how to answer without one."""
    how = f"lab.answer({prediction.key!r}, 5) for 5 {prediction.unit}"
    if prediction.options or not prediction.unit:
        how = f"lab.answer({prediction.key!r}, your answer)"
    lines = [f"Predict: {prediction.question}", *(f"  - {o}" for o in prediction.options)]
    text = "\n".join([*lines, f"  ({how}, or go on without)"])
    items = "".join(f"<li>{escape(option)}</li>" for option in prediction.options)
    html = f"<b>Predict.</b> {escape(prediction.question)}<ul>{items}</ul>"
    show(text, html, _widget(prediction) if in_notebook() else None)


def _widget(prediction: Prediction):
    import ipywidgets as widgets

    html = f"<b>Predict.</b> {escape(prediction.question)}"
    question = widgets.HTML(value=f'<div style="line-height:1.5">{html}</div>')
    if prediction.options:
        chosen = prediction.value if prediction.value in prediction.options else None
        field = widgets.RadioButtons(options=list(prediction.options), value=chosen)
        field.layout.width = "auto"
    else:
        number = "" if prediction.value is None else said(prediction.value, "")
        field = widgets.Text(number, placeholder="your number", description=prediction.unit)

    def changed(change) -> None:
        prediction.value = change["new"] if prediction.options else number_or_none(change["new"])

    field.observe(changed, names="value")
    return widgets.VBox([question, field])


def number_or_none(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def said(value: object, unit: str) -> str:
    """A value as one reads it: 0.0123 for a number or a tensor of one, with the unit."""
    try:
        value = f"{float(value):.4g}"
    except (TypeError, ValueError, RuntimeError):
        value = str(value)
    return f"{value} {unit}".rstrip()


def compare(prediction: Prediction, truth: object) -> str:
    """One sentence: what was predicted and what came out."""
    found = said(truth, prediction.unit)
    if prediction.value is None:
        return f"Result: {found}. You made no prediction this time."
    own = said(prediction.value, prediction.unit)
    if prediction.options or isinstance(truth, str):
        return f"Result: {found}, {'as' if own == found else 'and not as'} you predicted ({own})."
    try:
        ratio = float(prediction.value) / float(truth)
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError):
        return f"Result: {found}; you predicted {own}."
    if not LEAST_RATIO <= ratio <= 1 / LEAST_RATIO:  # also of opposite signs
        return f"Result: {found}; you predicted {own}."
    return f"Result: {found}; you predicted {own}, {ratio:.0%} of it."
