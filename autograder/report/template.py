"""The page of the report: one file, without scripts and without anything from elsewhere."""

ITEMS = """{% macro table(some) %}<div class="wide"><table class="list items">
<thead><tr><th>Test</th><th></th>
<th class="n">points</th><th class="n">difficulty</th><th></th><th class="n">not attempted</th>
<th class="n">discrimination</th>
<th class="n">lost</th></tr></thead>
<tbody>
{% for item in some %}<tr id="t{{ item.number }}"><td class="n">{{ item.number }}</td>
<td class="name">{{ item.test.exercise }}, {{ item.test.kind }}: {{ item.test.title }}
{%- if item.remark %}<br><span class="{{ "warn" if item.wrong_way else "quiet" }}">
{{- item.remark }}</span>{% endif %}</td>
<td class="n" data-of="points">{{ number(item.test.max_points) }}</td>
<td class="n" data-of="difficulty">{{ share(item.difficulty) }}</td>
<td class="bar"><span class="share"><i style="width:{{ share(item.difficulty) }}"></i></span></td>
<td class="n" data-of="not attempted">{{ item.not_attempted }}</td>
<td class="n" data-of="discrimination">{{ correlation(item.discrimination) }}</td>
<td class="n" data-of="lost">{{ "%.2f" | format(item.lost) }}</td></tr>
{% endfor %}</tbody></table></div>{% endmacro %}
"""  # tests with their figures

PAGE = (
    ITEMS
    + """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="generator" content="{{ generator }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}: the class</title>
<style>
{{ css }}</style>
</head>
<body>
<h1>{{ title }}: the class</h1>
<p class="quiet">{{ lab }}, graded {{ graded_at }}. Points are those of the tests, of
{{ number(top) }}; questions that a person grades and what is taken off for lateness are not in
them.{% if not named %} No name, id or single message of a student stands on this page; a number is
a place in the order of points.{% endif %}</p>
<nav>{% if board %}<a href="#board">Board</a> {% endif %}
<a href="#scores">Scores</a> <a href="#heat">Students and tests</a>
<a href="#items">Item analysis</a> <a href="#causes">Usual causes</a> <a href="#slow">Slow cells</a>
<a href="#people">Missing and late</a> <a href="#similar">Similar submissions</a></nav>
<ul class="tiles">
{% for name, value in tiles %}<li><b>{{ value }}</b>{{ name }}</li>
{% endfor %}</ul>
{% for line in warnings %}<p class="warn">{{ line }}</p>
{% endfor %}
<h2 id="scores">Scores</h2>
{% if rows %}{{ histogram }}
<p>Mean {{ one(mean) }}, standard deviation {{ one(spread) }}; quartiles {{ one(quartiles[0]) }},
{{ one(quartiles[1]) }} (median), {{ one(quartiles[2]) }}.</p>
<div class="wide"><table class="list"><thead><tr><th>Exercise</th>
<th class="n">mean points</th><th class="n">of</th>
<th class="n">all points</th><th class="n">none</th><th class="n">not attempted</th></tr></thead>
<tbody>
{% for part in exercises %}<tr><td>{{ part.name }}: {{ part.title }}</td>
<td class="n">{{ one(part.mean) }}</td><td class="n">{{ number(part.top) }}</td>
<td class="n">{{ part.full }}</td><td class="n">{{ part.none }}</td>
<td class="n">{{ part.open }}</td></tr>
{% endfor %}</tbody></table></div>
{% else %}<p>Nothing was graded.</p>{% endif %}
{% if board %}
<h2 id="board">The board</h2>
<p>It gives no points. Less is better; as the lab is released: {{ figure(board.released) }}
{{ board.unit }}. Left so: {{ board.untouched }}; does not count: {{ board.invalid }}.</p>
{% if board.places %}<div class="wide"><table class="list"><thead><tr><th>Place</th><th>Student</th>
<th class="n">{{ board.unit }}</th></tr></thead><tbody>
{% for place, label, value in board.places %}<tr><td class="n">{{ place }}</td><td>{{ label }}</td>
<td class="n">{{ figure(value) }}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}
{% endif %}
<h2 id="heat">Students and tests</h2>
{% if rows %}<p>A row is a student, a column a test; the numbers lead to the item analysis. A cell
that is not passed says what it is when you point at it.</p>
<p class="key"><span></span>passed<span class="f"></span>failed<span class="o"></span>not
attempted<span class="v"></span>not verified here</p>
<div class="wide"><table class="heat{{ " many" if rows | length > many }}{{ " named" if named }}
{{- " narrow" if items | length > narrow }}" style="--least: {{ items | length * 15 }}px">
<colgroup><col class="who"><col class="sum">{% for item in items %}<col>{% endfor %}</colgroup>
<thead><tr><th></th><th></th>{% for name, count in groups %}<th class="group"
colspan="{{ count }}">{{ name }}</th>{% endfor %}</tr>
<tr><th></th><th>points</th>{% for item in items %}<th><a href="#t{{ item.number }}"
title="{{ item.number }}, {{ item.test.exercise }}: {{ item.test.title }}">
{{- item.number if items | length <= narrow or item.number % 5 == 0 else "&middot;" | safe -}}
</a></th>{% endfor %}</tr>
</thead>
<tbody>
{% for row in rows %}<tr><th>{{ row.label }}</th><td class="s">{{ one(row.result.score) }}</td>
{%- for mark, told in cells(row) %}<td{% if mark %} class={{ mark }} title="{{ told }}"{% endif %}>
{%- endfor %}
{% endfor %}</tbody></table></div>
{% endif %}

<h2 id="items">Item analysis</h2>
{% if rows %}<p>Of {{ counted }} submissions in which something was attempted. <b>Difficulty</b> is
the share that passes. <b>Discrimination</b> is the correlation of passing with the points of all
other tests: near 0, who knows the lab passes no more often than others.
<b>Lost</b> are the points that a submission loses here on average; tests that cost most come
first.{% if few %}
<span class="warn">With fewer than {{ few }} submissions these figures are rough.</span>
{%- endif %}</p>
<p>Everybody passes: {{ everybody or "no test" }}. Nobody passes: {{ nobody or "no test" }}.</p>
{% if failing %}{{ table(failing) }}{% endif %}
{% if passing %}<details><summary>Tests that everybody passes: {{ passing | length }}</summary>
{{ table(passing) }}</details>{% endif %}
{% endif %}

<h2 id="causes">Usual causes</h2>
<p>Of tests that failed, those whose cause cost the class most, as the tests themselves name it.
Messages are of public tests and of two students at least; # stands for numbers.</p>
{% if causes %}<div class="wide"><table class="list"><thead><tr><th>Exercise</th>
<th>usual cause, and what does not hold</th><th class="n">students</th><th class="n">points</th>
</tr></thead><tbody>
{% for cause in causes %}<tr><td>{{ cause.exercise }}</td><td class="name"><b>{{ cause.cause }}</b>
{% for text in cause.invariants %}<br>{{ text }}{% endfor %}
{% for text, count in cause.messages %}<br><span class="quiet">{{ count }} students:
{{ text }}</span>{% endfor %}</td>
<td class="n">{{ cause.students }}</td><td class="n">{{ one(cause.lost) }}</td></tr>
{% endfor %}</tbody></table></div>
{% else %}<p>No test failed.</p>{% endif %}

<h2 id="slow">Slow cells</h2>
<p>Cells that took a second of processor time or more in some submission, or that the time limit
stopped. Grading of one submission took {{ one(grading[0]) }} s (median), {{ one(grading[1]) }} s at
most.</p>
{% if slow %}<div class="wide"><table class="list"><thead><tr><th>Cell</th><th class="n">runs</th>
<th class="n">median, s</th><th class="n">longest, s</th><th class="n">stopped</th></tr></thead>
<tbody>
{% for cell in slow %}<tr><td>{{ cell.cell }}</td><td class="n">{{ cell.runs }}</td>
<td class="n">{{ one(cell.median) }}</td><td class="n">{{ one(cell.longest) }}</td>
<td class="n">{{ cell.stopped }}</td></tr>
{% endfor %}</tbody></table></div>{% else %}<p>No cell was slow.</p>{% endif %}

<h2 id="people">Missing and late</h2>
{% for name, people in apart if people %}<p>{{ name }}: {{ people | length }}{% if named %}</p>
<ul>{% for one in people %}<li>{{ one }}</li>{% endfor %}</ul>{% else %}.</p>{% endif %}
{% endfor %}
{% if late %}<table class="list"><thead><tr><th>Late</th><th class="n">by</th>
<th class="n">points taken off</th></tr></thead><tbody>
{% for row in late %}<tr><td>{{ row.label }}</td>
<td class="n">{{ duration(row.late.seconds) }}</td>
<td class="n">{{ number(row.late.taken_off) }}</td></tr>
{% endfor %}</tbody></table>
{% else %}<p>Nothing is known to be late: the lab has no due date, all came in time, or nothing says
when it was handed in.</p>{% endif %}
{% if marked %}<p>Marked as late by the course system, and nothing is taken off here:
{{ marked | length }}{% if named %}</p>
<ul>{% for row in marked %}<li>{{ row.label }}</li>{% endfor %}</ul>{% else %}
(in the order of points: {{ marked | map(attribute="label") | join(", ") }}).</p>{% endif %}
{% endif %}

<h2 id="similar">Similar submissions</h2>
<p>This page compares no code, and no other command does.
<code>autograder report {{ lab }} RESULTS --cells FOLDER</code> writes what each student wrote as a
Python file, with the release as the code that all have in common. JPlag (needs Java) and Dolos
(needs Node.js) compare such files, on your machine. The numbers of the files are those of this
page.</p>
</body>
</html>
"""
)
