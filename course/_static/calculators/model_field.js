/* Two fields of a form: a model of the table, or its config.json as text; a choice fills the text. */
"use strict";

calc.model = (() => {
  const spelled = (name) => JSON.stringify(calc.tables.MODELS[name], null, 1);

  /* What the shapes leave out, and which layers differ. */
  function notes(m, raw) {
    const said = [];
    if (m.window !== null) {
      const kind = m.chunked ? "chunks" : "a window";
      const all = m.fullLayers ? `, ${m.fullLayers} keep everything` : "";
      said.push(`${m.layers - m.fullLayers} layers keep ${kind} of ${calc.ui.count(m.window)} tokens${all}.`);
    }
    const sparse = calc.decoder.sparseLayers(m);
    if (sparse && sparse < m.layers) said.push(`${sparse} of ${m.layers} layers have experts.`);
    if (raw.text_config) {
      said.push("The text model alone: the part that reads pictures is not counted.");
    }
    return said.length ? [calc.ui.element("p", { class: "calc-note" }, said.join(" "))] : [];
  }

  /* The model in a text, with its notes. Throws calc.Fault; check may throw it too. */
  function read(text, check) {
    let raw;
    try {
      raw = JSON.parse(text);
    } catch (error) {
      throw new calc.Fault(`this is no JSON: ${error.message}`);
    }
    const m = calc.families.fromConfig(raw);
    check(m);
    return { ...m, notes: notes(m, raw) };
  }

  /* Models of the table that pass a check. */
  function passing(check) {
    return Object.keys(calc.tables.MODELS).filter((name) => {
      try {
        check(calc.families.fromConfig(calc.tables.MODELS[name]));
        return true;
      } catch (error) {
        if (!(error instanceof calc.Fault)) throw error;
        return false;
      }
    });
  }

  function fields(value, label = "config.json of one of these families", check = () => {}) {
    return [
      { name: "preset", label: "Model", options: passing(check), value },
      { name: "model", label, rows: 7, folded: "Another model: paste its config.json",
        value: spelled(value), parse: (text) => read(text, check) },
    ];
  }

  /* A choice fills the text; whoever edits the text has a model of their own. */
  function linked(made) {
    if (!made) return;
    const { preset, model } = made.made;
    preset.input.addEventListener("change", () => {
      model.input.value = spelled(preset.input.value);
      made.update();
    });
  }

  /* For what is derived for attention with keys and values of each head, and one MLP a layer. */
  function withoutExperts(m) {
    if (m.latent || m.experts) throw new calc.Fault("latents and experts are not counted here");
  }

  return { fields, linked, withoutExperts };
})();
