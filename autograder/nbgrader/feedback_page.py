"""The template of the feedback page; feedback.py says what goes into it."""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="made-from" content="{{ made_from }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ about.title }}: feedback</title>
<style>
{{ style }}body { max-width: 50em }
h2 { display: flex; flex-wrap: wrap; gap: 0 1em; overflow-wrap: anywhere }
.points { margin-left: auto; font-weight: normal; white-space: nowrap }
</style>
</head>
<body>
<h1>{{ about.title }}</h1>
<p><b>{{ about.student }}</b>:
{% if late -%}
{{ number(score + late) }} points, {{ number(late) }} taken off for handing in late:
{% endif -%}
<b>{{ number(score) }} of {{ number(max_score) }} points</b>
{%- if awaited %}; {{ awaited | join(", ") }} still to be graded by a person{% endif %}.</p>
{% if about.late %}<p>{{ about.late }}</p>{% endif %}
{% if about.hand_ins | length > 1 %}<p>Hand-in {{ about.hand_ins | length }}: it replaces those that
were graded before.</p>{% endif %}
{% if about.status != "graded" -%}
<p class="comment"><b>Not graded:</b> {{ about.reason }}</p>
{% if about.notebook %}<p>Hand in the notebook <b>{{ about.notebook }}.ipynb</b> of this lab: the
file itself, as JupyterLab saves it, no print or export of it.</p>{% endif %}
{% for comment in comments %}<div class="comment">{{ comment }}</div>{% endfor %}
{% endif -%}
{% if about.sandbox == "none" %}<p class="comment">Graded without a sandbox.</p>{% endif %}
<table>
{% for part in parts -%}
<tr><td>{{ part.title }}</td>
<td>{{ "to be graded" if part.awaits else number(part.score) + " of " + number(part.points) }}</td>
</tr>
{% endfor -%}
</table>
{% if about.remarks %}<h2>Your notebook</h2>
<ul>{% for note in about.remarks %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% for part in parts if about.status == "graded" %}
<h2 id="{{ part.id }}">{{ part.title }}
<span class="points">{% if part.awaits %}to be graded{% else -%}
{{ number(part.score) }} of {{ number(part.points) }}{% endif %}</span></h2>
{% if part.question %}<div class="question">{{ part.question }}</div>{% endif %}
{{ part.cards }}
{% if part.shared %}<p>This code calls that of {{ part.shared | join(" and ") }}, which lost points
too: one mistake may have cost points in both.</p>{% endif %}
{% if part.answer %}<div class="answer">{{ part.answer }}</div>{% endif %}
{% if part.code %}<details><summary>Your code</summary>{{ part.code }}</details>{% endif %}
{% for comment in part.comments %}<div class="comment">{{ comment }}</div>{% endfor %}
{% endfor %}
</body>
</html>
"""
