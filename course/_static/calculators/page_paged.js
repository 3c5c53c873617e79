/* Paged attention step by step: the lecture's example, and what the reader does with it. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const { element } = calc.ui;
  const [SIZE, BLOCKS, FREED] = [4, 8, ["7", "1", "4", "2"]];
  const EXAMPLE = [
    ["write", "A", "Alan Turing is a computer scientist"],
    ["write", "A", "and"],
    ["write", "A", "mathematician"],
    ["write", "A", "renowned"],
    ["fork", "A", "B"],
    ["write", "B", "throughout"],
    ["write", "A", "for"],
  ];
  const place = document.getElementById("calc-paged");
  if (!place) return;
  let [steps, done] = [[...EXAMPLE], 0];

  /* Every block taken by another request; those of FREED have ended, in this order. */
  function start() {
    const paged = new calc.Paged(BLOCKS, SIZE);
    for (let other = 0; other < BLOCKS; other++) paged.append(`${other}`, SIZE);
    for (const other of FREED) paged.free(other);
    const rows = Array.from({ length: BLOCKS }, () => Array(SIZE).fill(""));
    return { paged, rows, said: "Blocks 7, 1, 4 and 2 are free, in this order; others fill the rest." };
  }

  function write(state, name, words) {
    const { paged, rows } = state;
    const before = paged.lengths.get(name) ?? 0;
    const had = (paged.tables.get(name) ?? []).length;
    const copy = paged.append(name, words.length);
    if (copy) rows[copy[1]] = [...rows[copy[0]]];
    const table = paged.tables.get(name);
    words.forEach((word, i) => {
      const p = before + i;
      if (p % SIZE === 0) rows[table[Math.floor(p / SIZE)]].fill("");
      rows[table[Math.floor(p / SIZE)]][p % SIZE] = word;
    });
    const last = words.at(-1);
    if (copy) return `${name} writes “${last}”: block ${copy[0]} had two owners, so it was copied to ${copy[1]} first.`;
    if (!had) return `${name} begins with ${words.length} words: it takes the blocks ${table.join(", ")}.`;
    if (table.length > had) return `${name} writes “${last}”: its blocks were full, so it takes block ${table.at(-1)}.`;
    return `${name} writes “${last}” in place: block ${table.at(-1)} has no other owner.`;
  }

  function apply(state, [what, name, text]) {
    if (what === "write") state.said = write(state, name, text.split(" "));
    if (what === "fork") {
      state.paged.fork(name, text);
      state.said = `${text} is forked from ${name}: the same blocks, each with one owner more.`;
    }
    if (what === "end") {
      state.paged.free(name);
      state.said = `${name} ends: blocks that nobody else owns join the end of the queue.`;
    }
    return state;
  }

  const now = () => steps.slice(0, done).reduce(apply, start());

  /* A step of the reader's own takes the place of what was to come. */
  function own(step) {
    try {
      apply(now(), step);
    } catch (error) {
      if (!(error instanceof calc.Fault)) throw error;
      return show(`${error.message}: end a sequence first.`);
    }
    steps = [...steps.slice(0, done), step];
    done += 1;
    return show();
  }

  function blocks({ paged, rows }) {
    const owned = (b) => [...paged.tables].filter(([, table]) => table.includes(b)).map(([n]) => n);
    return element("div", { class: "paged-blocks" }, ...rows.map((words, b) => {
      const owners = owned(b);
      const other = owners.some((name) => /\d/.test(name));
      const kind = other ? "others" : owners.join("") || "free";
      const head = `block ${b}: ${other ? "another request" : owners.join(" and ") || "free"}`;
      const cells = words.map((word) => element("span", {}, other ? "" : word || "\u00a0"));
      return element("div", { class: `paged-block paged-${kind.toLowerCase()}` },
        element("b", {}, head), ...cells);
    }));
  }

  function button(text, action, enabled = true) {
    const made = element("button", { type: "button" }, text);
    made.disabled = !enabled;
    made.addEventListener("click", () => {
      action();
      const again = [...place.querySelectorAll("button")].find((b) => b.textContent === text);
      (again && !again.disabled ? again : place.querySelector("button:enabled"))?.focus();
    });
    return made;
  }

  function show(fault = "") {
    const state = now();
    const names = ["A", "B", "C"].filter((name) => state.paged.tables.has(name));
    const child = ["A", "B", "C"].find((name) => !state.paged.tables.has(name));
    const go = (to) => () => { done = to; show(); };
    const restart = () => { [steps, done] = [[...EXAMPLE], 0]; show(); };
    const tables = names.map((name) => element("li", {}, `${name}: table `,
      element("b", {}, state.paged.tables.get(name).join(" ")),
      `, ${state.paged.lengths.get(name)} tokens`));
    const free = element("li", {}, "free, next one first: ",
      element("b", {}, state.paged.queue.join(" ") || "none"));
    const each = names.flatMap((name) => [
      button(`${name} writes a word`, () => own(["write", name, "word"])),
      button(`${name} ends`, () => own(["end", name])),
      ...(child ? [button(`fork ${child} from ${name}`, () => own(["fork", name, child]))] : []),
    ]);
    const begin = names.length ? [] : [button("A begins", () => own(["write", "A", "a new text"]))];
    place.replaceChildren(
      element("div", { class: "paged-buttons" },
        button("Next", go(done + 1), done < steps.length), button("Back", go(done - 1), done > 0),
        button("Example again", restart), `step ${done} of ${steps.length}`),
      element("p", { class: "paged-said", role: "status" }, state.said),
      element("p", { class: "calc-fault", role: "alert" }, fault),
      blocks(state), element("ul", {}, ...tables, free),
      element("div", { class: "paged-buttons" }, "Or on your own: ", ...begin, ...each));
  }

  show();
});
