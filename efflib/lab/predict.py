"""Predictions: a question before the exercise, compared with what the student then finds.

Nothing here blocks or fails: without a front end the question is printed and may stay unanswered.
In a notebook the question, with the answer that was taken, is an output of its own above the field:
it is what a reopened notebook shows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from efflib.lab import look
from efflib.lab.display import in_notebook, show, show_widget

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

    def take(self, answer: object) -> None:
        """Keeps an answer. Raises ValueError, which says why, if it is none to this question."""
        if answer is None:
            self.value = None
        elif self.options:
            if answer not in self.options:
                raise ValueError(f"{answer!r} is none of the options: {'; '.join(self.options)}")
            self.value = answer
        else:
            self.value = as_number(answer)

    def answered(self) -> str:
        if self.value is None:
            return "no answer"
        return f"✓ noted: {said(self.value, self.unit)}"


def as_number(answer: object) -> float:
    """A number, or text that is one, also with a decimal comma. Raises ValueError."""
    try:
        number = float(answer.replace(",", ".") if isinstance(answer, str) else answer)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{answer!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{answer!r} is not a finite number")
    return number


def ask(prediction: Prediction) -> None:
    """Show the question with a field, or as text that says how to answer without one."""
    if not in_notebook():
        show(text_of(prediction), "")
        return
    from IPython.display import display

    handle = display(bundle(prediction), raw=True, display_id=True)

    def refresh(refused: str = "") -> None:
        handle.update(bundle(prediction, refused), raw=True)

    show_widget(field(prediction, refresh))


def text_of(prediction: Prediction) -> str:
    how = f"lab.answer({prediction.key!r}, x) for x {prediction.unit}"
    if prediction.options or not prediction.unit:
        how = f"lab.answer({prediction.key!r}, your answer)"
    lines = [f"Predict: {prediction.question}", *(f"  - {o}" for o in prediction.options)]
    return "\n".join([*lines, f"  ({how}, or go on without)"])


def bundle(prediction: Prediction, refused: str = "") -> dict[str, str]:
    """The question and what was answered, as HTML and as text."""
    items = "".join(f"<li>{escape(option)}</li>" for option in prediction.options)
    inside = f"<b>Predict.</b> {escape(prediction.question)}"
    inside += f"<ul>{items}</ul>" if items else ""
    if refused:
        inside += look.element("eff-refused", f"✗ {refused}")
    elif prediction.value is not None:
        inside += look.element("eff-taken", prediction.answered())
    html = look.block(f'<div class="eff-question">{inside}</div>')
    return {"text/html": html, "text/plain": text_of(prediction)}


def field(prediction: Prediction, refresh):
    """A widget that takes the answer and calls refresh(why it was refused, or "")."""
    import ipywidgets as widgets

    if prediction.options:
        chosen = prediction.value if prediction.value in prediction.options else None
        entry = box = widgets.RadioButtons(options=list(prediction.options), value=chosen)
        entry.layout.width = "auto"
    else:
        number = "" if prediction.value is None else said(prediction.value, "")
        entry = widgets.Text(number, placeholder="your number", continuous_update=False)
        entry.layout.width = "10em"
        box = widgets.HBox([entry, widgets.Label(prediction.unit)])

    def changed(change) -> None:
        try:
            prediction.take(change["new"] or None)  # an empty field is no answer
            refresh()
        except ValueError as refused:
            prediction.value = None
            refresh(str(refused))

    entry.observe(changed, names="value")
    return box


def said(value: object, unit: str) -> str:
    """A value as one reads it: 0.0123 for a number or a tensor of one, with the unit."""
    try:
        value = f"{float(value):.4g}"
    except (TypeError, ValueError, RuntimeError):
        value = str(value)
    return f"{value} {unit}".rstrip()


def compare(prediction: Prediction, truth: object, right: Sequence = ()) -> str:
    """One sentence: what was predicted and what came out; right: options that count as right."""
    found = said(truth, prediction.unit)
    if prediction.value is None:
        return f"Result: {found}. You made no prediction this time."
    own = said(prediction.value, prediction.unit)
    if own == found:
        return f"Result: {found}, as you predicted."
    if prediction.value in right:
        return f"Result: {found}, as you predicted ({own})."
    if prediction.options or isinstance(truth, str):
        return f"Result: {found}, and not as you predicted ({own})."
    try:
        ratio = float(prediction.value) / float(truth)
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError):
        return f"Result: {found}; you predicted {own}."
    if prediction.unit == "%":  # percent of percent would be read as points
        points = float(prediction.value) - float(truth)
        return f"Result: {found}; you predicted {own}, {abs(points):.3g} points too " + (
            "much." if points > 0 else "little."
        )
    if not LEAST_RATIO <= ratio <= 1 / LEAST_RATIO:  # also of opposite signs
        return f"Result: {found}; you predicted {own}."
    return f"Result: {found}; you predicted {own}, {off_by(ratio)}."


def off_by(ratio: float) -> str:
    """A prediction over the result, in words."""
    if ratio >= 2:
        return f"{ratio:.2g} times as much"
    return f"{abs(ratio - 1):.0%} too {'much' if ratio > 1 else 'little'}"
