/* A form whose result is drawn again at every change, with a fault beside the field that has it. */
"use strict";

calc.ui = (() => {
  /* element("p", {class: "note"}, "text", child, …) */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /* Fields: {name, label, value} and one of
       options: [names]                  a choice
       rows: number                      a text; folded: what its fold says
       least, most, whole (or not)       a number */
  function control(field, id) {
    if (field.options) {
      const options = field.options.map((name) => element("option", { value: name }, name));
      const made = element("select", { id }, ...options);
      made.value = field.value;
      return made;
    }
    const attributes = field.rows
      ? { id, rows: field.rows, spellcheck: "false" }
      : { id, type: "text", inputmode: "decimal", autocomplete: "off" };
    const made = element(field.rows ? "textarea" : "input", attributes);
    made.value = field.value;
    return made;
  }

  /* Thousands may stand apart, as tables here write them: 4,096 and 4 096 and 4_096, but not 0,8. */
  const APART = /^\d{1,3}(?:([,_'’\s])\d{3})(?:\1\d{3})*(?:\.\d+)?$/;

  /* The number in a text, NaN where there is none. */
  function numeral(text) {
    const bare = text.trim();
    if (APART.test(bare)) return Number(bare.replace(/[,_'’\s]/g, ""));
    return bare === "" ? NaN : Number(bare);
  }

  /* What a field holds. Throws calc.Fault for a text that is no number, or not in its range. */
  function read(field, text) {
    if (field.options || field.rows) return text;
    const number = numeral(text);
    const short = /^\s*([\d.]+)\s*[kKmM]\s*$/.test(text);
    if (short) throw new calc.Fault(`${text.trim()}: written out, please; k is 1,000 or 1,024`);
    const fits = field.whole === false ? Number.isFinite(number) : Number.isSafeInteger(number);
    if (!fits || number < field.least || number > field.most) {
      const kind = field.whole === false ? "number" : "whole number";
      const range = `from ${count(field.least)} to ${count(field.most)}`;
      throw new calc.Fault(`${text.trim() || "nothing"}: it must be a ${kind} ${range}`);
    }
    return number;
  }

  /* A fault stands outside the fold, so it is seen when the fold is closed. */
  function folded(field, ...parts) {
    if (!field.folded) return parts;
    return [element("details", {}, element("summary", {}, field.folded), ...parts)];
  }

  /* One field with its label; valid() returns its value, or undefined and shows the fault. */
  function labelled(field, form) {
    const id = `${form}-${field.name}`;
    const input = control(field, id);
    const fault = element("output", { class: "calc-fault", id: `${id}-fault`, for: id });
    input.setAttribute("aria-describedby", fault.id);
    const box = element("div", { class: field.rows ? "calc-field calc-wide" : "calc-field" },
      ...folded(field, element("label", { for: id }, field.label), input), fault);
    const show = (text) => {
      fault.textContent = text;
      input.setAttribute("aria-invalid", text ? "true" : "false");
    };
    const value = () => {
      try {
        const found = read(field, input.value);
        show("");
        return field.parse ? field.parse(found) : found;
      } catch (error) {
        if (!(error instanceof calc.Fault)) throw error;
        show(error.message);
        return undefined;
      }
    };
    return { box, input, value };
  }

  /* Puts a calculator into the element with this id. draw(values, output) is called at every
     change if all fields are right; else what was drawn before stays, dimmed. */
  function calculator(id, fields, draw) {
    const place = document.getElementById(id);
    if (!place) return null;
    const made = Object.fromEntries(fields.map((field) => [field.name, labelled(field, id)]));
    const output = element("div", { class: "calc-output", "aria-live": "polite" });
    const boxes = Object.values(made).map((one) => one.box);
    place.replaceChildren(element("div", { class: "calc-fields" }, ...boxes), output);
    const update = () => {
      const values = {};
      for (const [name, one] of Object.entries(made)) values[name] = one.value();
      const right = Object.values(values).every((value) => value !== undefined);
      output.classList.toggle("calc-stale", !right);
      if (right) output.replaceChildren(...draw(values));
    };
    place.addEventListener("input", update);
    update();
    return { made, update };
  }

  /* rows: [[cell, …], …], the first one the heads; numbers stand to the right. */
  function table(rows) {
    const [heads, ...body] = rows;
    const line = (cells, tag) => element("tr", {}, ...cells.map((text) => element(tag, {}, text)));
    return element("div", { class: "calc-scroll" }, element("table", { class: "calc-table" },
      element("thead", {}, line(heads, "th")),
      element("tbody", {}, ...body.map((cells) => line(cells, "td")))));
  }

  /* A number for readers: 3 digits that count, thousands apart. */
  function count(x) {
    if (!Number.isFinite(x)) return "any";
    if (Number.isInteger(x)) return x.toLocaleString("en-US");
    return x.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(x) < 100 ? 3 : 4 });
  }

  function bytes(x) {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (Math.abs(x) >= 1024 && power < units.length - 1) [x, power] = [x / 1024, power + 1];
    return `${count(x)} ${units[power]}`;
  }

  function seconds(x) {
    if (x >= 1) return `${count(x)} s`;
    return x >= 1e-3 ? `${count(x * 1e3)} ms` : `${count(x * 1e6)} µs`;
  }

  return { element, calculator, table, count, bytes, seconds, numeral };
})();
