/* The calculators of a model's memory and of its times. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const { calculator, table, count, bytes, seconds } = calc.ui;
  const { MODELS, GPUS, FORMATS } = calc.tables;
  const { memory, roofline } = calc;
  const RESERVE = 10; // % of the memory, for what is not counted
  const spelled = (name) => JSON.stringify(MODELS[name], null, 1);
  const formats = Object.keys(FORMATS);
  const gpu = { name: "gpu", label: "GPU", options: Object.keys(GPUS), value: "RTX 4090",
    parse: (name) => GPUS[name] };
  const format = (name, label, value = formats[0]) => ({ name, label, options: formats, value,
    parse: (chosen) => FORMATS[chosen] });
  const whole = (name, label, value, most, least = 1) => ({ name, label, value, least, most });

  function decoder(text) {
    let raw;
    try {
      raw = JSON.parse(text);
    } catch (error) {
      throw new calc.Fault(`this is no JSON: ${error.message}`);
    }
    const m = calc.families.fromConfig(raw);
    return { ...m, notes: notes(m, text) };
  }

  /* What stands first where a model does not fit; nothing where it does. */
  function warning(v, tokens, batch, reserve) {
    const bytesOf = v.gpu.memory * memory.GiB;
    const usable = `${bytes(bytesOf * (1 - reserve / 100))} of ${bytes(bytesOf)} are usable`;
    const needed = (n) =>
      memory.devicesNeeded(v.model, bytesOf, tokens, n, v.weights, v.cache, reserve);
    const all = memory.weightBytes(v.model, v.weights)
      + memory.kvBytes(v.model, tokens, batch, v.cache);
    if (needed(batch) === 1) return [];
    const what = needed(0) > 1
      ? `the weights alone take ${bytes(memory.weightBytes(v.model, v.weights))}`
      : `weights and the cache of ${count(batch)} × ${count(tokens)} tokens take ${bytes(all)}`;
    return [calc.ui.element("p", { class: "calc-warning" },
      calc.ui.element("strong", {}, "Does not fit on one: "),
      `${what}, and ${usable}. ${count(needed(batch))} GPUs would hold it, if it divides evenly.`)];
  }

  /* What the shapes leave out, and which layers differ. */
  function notes(m, text) {
    const said = [];
    if (m.window !== null) {
      const kind = m.chunked ? "chunks" : "a window";
      const all = m.fullLayers ? `, ${m.fullLayers} keep everything` : "";
      said.push(`${m.layers - m.fullLayers} layers keep ${kind} of ${count(m.window)} tokens${all}.`);
    }
    const sparse = calc.decoder.sparseLayers(m);
    if (sparse && sparse < m.layers) said.push(`${sparse} of ${m.layers} layers have experts.`);
    if (JSON.parse(text).text_config) {
      said.push("The text model alone: the part that reads pictures is not counted.");
    }
    return said.length ? [calc.ui.element("p", { class: "calc-note" }, said.join(" "))] : [];
  }

  const shared = [
    { name: "preset", label: "Model", options: Object.keys(MODELS), value: "llama-2-7b" },
    { name: "model", label: "config.json of one of these families", rows: 7,
      folded: "Another model: paste its config.json", value: spelled("llama-2-7b"), parse: decoder },
    gpu,
  ];

  /* A preset fills the text; whoever edits the text has his own model. */
  function linked(made) {
    if (!made) return;
    const { preset, model } = made.made;
    preset.input.addEventListener("change", () => {
      model.input.value = spelled(preset.input.value);
      made.update();
    });
  }

  linked(calculator("calc-memory", [
    ...shared,
    whole("tokens", "Tokens of a sequence", 4096, 1e7),
    whole("batch", "Sequences", 1, 1e5),
    format("weights", "Weights"),
    format("cache", "KV cache"),
    whole("reserve", "Reserve, %", 10, 90, 0),
  ], (v) => {
    const total = v.gpu.memory * memory.GiB;
    const weights = memory.weightBytes(v.model, v.weights);
    const one = memory.kvBytes(v.model, v.tokens, 1, v.cache);
    const usable = total * (1 - v.reserve / 100);
    const fit = memory.sequences(v.model, total, v.tokens, v.weights, v.cache, v.reserve);
    const longest = memory.longestContext(v.model, total, v.batch, v.weights, v.cache, v.reserve);
    const most = Math.max(2, v.batch, Math.min(2 * fit, 1e6));
    const at = (n) => [n, (weights + n * one) / memory.GiB];
    return [
      ...warning(v, v.tokens, v.batch, v.reserve),
      ...v.model.notes,
      table([
        ["", "memory"],
        [`${count(calc.decoder.parameters(v.model))} parameters`, bytes(weights)],
        ["cache of one token", bytes(memory.kvBytes(v.model, 1, 1, v.cache))],
        [`cache of ${count(v.tokens)} tokens`, bytes(one)],
        [`cache of all sequences, ${count(v.batch)}`, bytes(v.batch * one)],
        ["activations, one prompt at a time", bytes(memory.activationBytes(v.model, v.tokens, 1))],
        ["weights and cache", bytes(weights + v.batch * one)],
        ["usable on this GPU", bytes(usable)],
      ]),
      table([
        ["", "at most"],
        [`sequences of ${count(v.tokens)} tokens`, count(fit)],
        [v.batch === 1 ? "tokens of one sequence" : `tokens of each of ${count(v.batch)} sequences`,
          count(longest)],
      ]),
      calc.chart.lines([
        { name: "weights and cache", points: [at(0), at(most)] },
        { name: "usable", dashed: true,
          points: [[0, usable / memory.GiB], [most, usable / memory.GiB]] },
      ], { x: "sequences", y: "GiB", title: `Memory against sequences; ${count(fit)} fit` }),
    ];
  }));

  linked(calculator("calc-roofline", [
    ...shared,
    whole("prompt", "Prompt, tokens", 512, 1e6),
    whole("fresh", "New tokens", 128, 1e4),
    whole("batch", "Sequences", 1, 1e4),
    format("weights", "Weights", "4 bits, groups of 128"),
    format("cache", "KV cache"),
  ], (v) => {
    const times = roofline.latency(v.model, v.gpu, v.prompt, v.fresh, v.batch, v.weights, v.cache);
    const step = roofline.decode(v.model, v.prompt, v.weights, v.cache);
    const plain = roofline.decode(v.model, v.prompt, FORMATS[formats[0]], FORMATS[formats[0]]);
    const bound = (one) =>
      roofline.reading(one, v.gpu, v.batch) > roofline.computing(one, v.gpu, v.batch)
        ? "reading" : "computing";
    const ridge = roofline.ridge(step, v.gpu);
    const first = roofline.prefill(v.model, v.prompt, v.weights, v.cache);
    const most = Math.max(16, 2 * v.batch, Math.min(2 * ridge, 256));
    const rates = (one) => Array.from({ length: 65 }, (_, i) => 1 + (i / 64) * (most - 1))
      .map((batch) => [batch, roofline.tokensPerSecond(one, v.gpu, batch)]);
    const here = roofline.tokensPerSecond(step, v.gpu, v.batch);
    const awake = (one) => `${count(roofline.woken(step.routed, step.used, v.batch * one.tokens))}`
      + ` of ${count(step.routed)}`;
    const experts = v.model.experts ? [
      ["experts of a layer that a step wakes", awake(step)],
      ["those that the prompt wakes", awake(first)],
    ] : [];
    const unfit = warning(v, v.prompt + v.fresh, v.batch, RESERVE);
    if (unfit.length) unfit[0].append(" The times are those of one GPU with the memory for it.");
    return [
      ...unfit,
      ...v.model.notes,
      table([
        ["least time", "", "bound by"],
        ["to the first token (TTFT)", seconds(times.ttft), bound(first)],
        ["for each further one (TPOT)", seconds(times.tpot), bound(step)],
        [`of the whole request, ${count(v.fresh)} tokens`, seconds(times.total), ""],
      ]),
      table([
        ["right behind the prompt", ""],
        ["tokens per second, all together", count(here)],
        ["computing decides from", Number.isFinite(ridge) ? `${count(ridge)} sequences` : "never"],
        ["weights that a step reads", bytes(roofline.weightsRead(step, v.batch))],
        ...experts,
      ]),
      calc.chart.lines([
        { name: "as chosen", points: rates(step) },
        { name: "weights and cache in 16 bits", points: rates(plain), dashed: true },
      ], { x: "sequences", y: "tokens per second, at most",
        title: `Tokens per second against sequences, ${count(here)} at ${v.batch}` },
      [{ x: v.batch, y: here, text: count(here) }]),
    ];
  }));
});
