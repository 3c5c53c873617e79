/* The calculators of limits and of training budgets. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const { calculator, table, count, seconds } = calc.ui;
  const { MODELS, GPUS } = calc.tables;
  const { limits, budget } = calc;
  const whole = (name, label, value, most, least = 1) => ({ name, label, value, least, most });
  const real = (name, label, value, most, least = 0) =>
    ({ name, label, value, least, most, whole: false });
  const spelled = (name) => JSON.stringify(MODELS[name], null, 1);
  const plain = Object.keys(MODELS).filter((name) => {
    const m = calc.families.fromConfig(MODELS[name]);
    return !m.latent && !m.experts && !m.window;
  });

  function decoder(text) {
    let raw;
    try {
      raw = JSON.parse(text);
    } catch (error) {
      throw new calc.Fault(`this is no JSON: ${error.message}`);
    }
    const m = calc.families.fromConfig(raw);
    limits.layerWeights(m);
    return m;
  }

  const made = calculator("calc-limits", [
    { name: "preset", label: "Model", options: plain, value: "llama-2-7b" },
    { name: "model", label: "config.json of a model without latents, experts and windows", rows: 7,
      folded: "Another model: paste its config.json", value: spelled("llama-2-7b"), parse: decoder },
    { name: "gpu", label: "GPU", options: Object.keys(GPUS), value: "H100", parse: (n) => GPUS[n] },
    whole("fresh", "New tokens of a sequence", 1, 1e6),
    whole("cached", "Cached tokens", 50, 1e7, 0),
    whole("batch", "Sequences", 32, 1e5),
    whole("bits", "Bits of a weight", 16, 32),
    whole("kvBits", "Bits of a key or value", 16, 32),
    real("flop", "pJ a FLOP", 0.75, 1000),
    real("byte", "pJ a byte", 31.2, 10000),
    real("watts", "Watts at rest", 0, 2000),
  ], (v) => {
    const { model: m, gpu, fresh, cached, batch, bits, kvBits } = v;
    const all = limits.parts(m, fresh, cached, batch, bits, kvBits);
    const pass = limits.total(m, fresh, cached, batch, bits, kvBits);
    const bound = limits.moved(pass) / gpu.bandwidth > pass.flops / gpu.peak ? "bytes" : "computing";
    const edge = limits.ridgeBatch(m, cached, gpu, bits, kvBits);
    const last = limits.ridgeContext(m, gpu, kvBits);
    const prices = { flop: v.flop * 1e-12, byte: v.byte * 1e-12, watts: v.watts };
    const each = (n) => `${count(limits.joules(m, 100, 100, gpu, prices, n, bits, kvBits))} J`;
    const most = Math.max(16, 2 * batch, Math.min(1.5 * edge, 2048));
    const line = (time) => Array.from({ length: 65 }, (_, i) => 1 + (i / 64) * (most - 1))
      .map((n) => [n, 1e3 * time(limits.total(m, 1, cached, n, bits, kvBits))]);
    return [
      table([
        ["this pass", ""],
        ["FLOPs a byte", count(limits.intensity(pass))],
        ["the GPU's ridge", count(limits.ridge(gpu))],
        ["bound by", bound],
        ["at least", seconds(limits.seconds(pass, gpu))],
        ["its parts in turn", seconds(limits.inTurn(all, gpu))],
      ]),
      table([
        ["decoding", ""],
        ["computing decides from", Number.isFinite(edge) ? `${count(edge)} sequences` : "never"],
        ["in no batch from",
          Number.isFinite(last) ? `${count(Math.ceil(last))} cached tokens` : "never"],
        ["joules of 100 tokens behind 100, alone", each(1)],
        [`the same, each of ${count(batch)}`, each(batch)],
      ]),
      calc.chart.lines([
        { name: "moving bytes", points: line((p) => limits.moved(p) / gpu.bandwidth) },
        { name: "computing", points: line((p) => p.flops / gpu.peak), dashed: true },
      ], { x: "sequences", y: "ms of a decoding step",
        title: "Time to move and to compute a decoding step against sequences" }),
    ];
  });
  if (made) {
    const { preset, model } = made.made;
    preset.input.addEventListener("change", () => {
      model.input.value = spelled(preset.input.value);
      made.update();
    });
  }

  calculator("calc-budget", [
    real("parameters", "Parameters, 10⁹", 6.74, 1e6, 1e-6),
    real("tokens", "Tokens of training, 10⁹", 2000, 1e9, 1e-6),
    real("used", "Tokens used later, 10⁹", 10000, 1e12),
    { name: "law", label: "Loss after", options: Object.keys(budget.LAWS),
      value: Object.keys(budget.LAWS)[0], parse: (name) => budget.LAWS[name] },
  ], (v) => {
    const [n, d, used] = [1e9 * v.parameters, 1e9 * v.tokens, 1e9 * v.used];
    const compute = budget.training(n, d);
    const row = (name, [a, b]) => [name, count(a / 1e9), count(b / 1e9), count(b / a),
      budget.loss(a, b, v.law).toFixed(3), budget.training(a, b).toExponential(2),
      budget.lifetime(a, b, used).toExponential(2)];
    const wanted = budget.loss(n, d, v.law);
    const best = budget.byLaw(compute, v.law);
    const same = [best[0], budget.tokensFor(wanted, best[0], v.law)];
    return [table([
      ["", "N, 10⁹", "D, 10⁹", "D / N", "loss", "FLOPs of training", "with its use"],
      row("this model", [n, d]),
      row("the same budget, 20 tokens a parameter", budget.byRule(compute, 20)),
      row("the same budget, by the law", best),
      row("of that size, this model's loss", same),
    ])];
  });
});
