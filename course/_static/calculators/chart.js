/* A line chart as SVG, in the colours of the page. */
"use strict";

calc.chart = (() => {
  const [WIDTH, HEIGHT] = [560, 280];
  const EDGE = { left: 58, right: 14, top: 30, bottom: 42 };

  function svg(tag, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /* Round numbers from 0 on, at most six. */
  function ticks(most) {
    const rough = most / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough * 0.999);
    const found = [];
    for (let i = 0; i * step <= most * 1.0001; i++) found.push(i * step);
    return found;
  }

  function axes(x, y, mostX, mostY, labels) {
    const parts = [];
    for (const tick of ticks(mostY)) {
      const at = { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(tick), y2: y(tick) };
      parts.push(svg("line", { class: "calc-grid", ...at }));
      const place = { x: EDGE.left - 6, y: y(tick) + 4, "text-anchor": "end" };
      parts.push(svg("text", place, calc.ui.count(Number(tick.toPrecision(6)))));
    }
    for (const tick of ticks(mostX)) {
      const place = { x: x(tick), y: HEIGHT - EDGE.bottom + 17, "text-anchor": "middle" };
      parts.push(svg("text", place, calc.ui.count(Number(tick.toPrecision(6)))));
    }
    const middle = (EDGE.left + WIDTH - EDGE.right) / 2;
    parts.push(svg("text", { x: middle, y: HEIGHT - 6, "text-anchor": "middle" }, labels.x));
    parts.push(svg("text", { x: 4, y: 13 }, labels.y));
    return parts;
  }

  /* lines: [{name, points: [[x, y], …], dashed?}], at most four; marks: [{x, y, text}];
     labels: {x, y, title}. The title says in words what is drawn, for who can't see it. */
  function lines(series, labels, marks = []) {
    const all = series.flatMap((line) => line.points);
    const mostX = Math.max(...all.map(([x]) => x), 1e-9);
    const mostY = Math.max(...all.map(([, y]) => y), 1e-9) * 1.08;
    const x = (v) => EDGE.left + (v / mostX) * (WIDTH - EDGE.left - EDGE.right);
    const y = (v) => HEIGHT - EDGE.bottom - (v / mostY) * (HEIGHT - EDGE.top - EDGE.bottom);
    const parts = axes(x, y, mostX, mostY, labels);
    series.forEach((line, i) => {
      const points = line.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`);
      const look = `calc-line calc-line-${i + 1}${line.dashed ? " calc-dashed" : ""}`;
      parts.push(svg("polyline", { class: look, points: points.join(" ") }));
    });
    for (const mark of marks) {
      const right = x(mark.x) > WIDTH / 2;
      parts.push(svg("circle", { class: "calc-mark", cx: x(mark.x), cy: y(mark.y), r: 5 }));
      const place = { x: x(mark.x) + (right ? -9 : 9), y: y(mark.y) - 8 };
      parts.push(svg("text", { ...place, "text-anchor": right ? "end" : "start" }, mark.text));
    }
    const picture = svg("svg", { class: "calc-chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img", "aria-label": labels.title }, ...parts);
    const legend = series.map((line, i) => calc.ui.element("span", {},
      calc.ui.element("i", { class: `calc-key calc-key-${i + 1}` }), line.name));
    return calc.ui.element("figure", { class: "calc-figure" }, picture,
      calc.ui.element("figcaption", {}, ...legend));
  }

  return { lines, ticks };
})();
