"""Predictions: a question before the exercise, compared with what the student then finds.

Nothing here blocks or fails: without a front end the question is printed and may stay unanswered.
"""

from dataclasses import dataclass, field

from efflib.lab.display import in_notebook


@dataclass
class Prediction:
    """A question and its answer: `value` is None until the student chooses."""

    key: str
    question: str
    options: list[str] | None = None
    value: object = None
    widget: object = field(default=None, repr=False)

    def _repr_mimebundle_(self, **kwargs):
        """Shows the widget as the result of a cell, where there is one."""
        if self.widget is None:
            return {"text/plain": f"prediction {self.key!r}: {self.value}"}
        return self.widget._repr_mimebundle_(**kwargs)


def ask(key: str, question: str, options: list[str] | None = None) -> Prediction:
    """A prediction with a widget in a notebook, or as printed text elsewhere."""
    prediction = Prediction(key, question, options)
    if in_notebook():
        prediction.widget = _widget(prediction)
    else:
        print(f"Predict: {question}")
        for option in options or []:
            print(f"  - {option}")
    return prediction


def _widget(prediction: Prediction):
    import ipywidgets as widgets

    def changed(change) -> None:
        prediction.value = change["new"]

    if prediction.options:
        answer = widgets.RadioButtons(options=prediction.options, value=None)
        answer.layout.width = "auto"
    else:
        answer = widgets.FloatText(value=None)
    answer.observe(changed, names="value")
    question = widgets.HTML(value="<b>Predict.</b> ")
    text = widgets.Label(value=prediction.question)
    text.layout.white_space = "normal"
    return widgets.VBox([question, text, answer])


def compare(prediction: Prediction | None, found: object) -> str:
    """One sentence: what was predicted and what came out."""
    if prediction is None or prediction.value is None:
        return f"Result: {found}. (You made no prediction: it is worth a try next time.)"
    if prediction.options:
        verdict = "as you predicted" if prediction.value == found else "not what you predicted"
        return f"Result: {found}; {verdict} ({prediction.value})."
    return f"Result: {found}; you predicted {prediction.value}."
