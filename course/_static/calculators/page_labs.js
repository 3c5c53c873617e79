/* The calculators of tokens to keep, experts to wake, a server's knee, adapters and plans. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const { calculator, table, count, bytes, seconds } = calc.ui;
  const { GPUS, FORMATS } = calc.tables;
  const { tokens: T, bills, plans, roofline, memory } = calc;
  const { fields, linked, withoutExperts } = calc.model;
  const whole = (name, label, value, most, least = 1) => ({ name, label, value, least, most });
  const real = (name, label, value, most, least = 0) =>
    ({ name, label, value, least, most, whole: false });
  const formats = Object.keys(FORMATS);
  const half = FORMATS[formats[0]];

  /* Tokens: keep few, or read few (lab 12). */
  function headed(m) {
    if (m.latent || m.window) throw new calc.Fault("latents and windows are not counted here");
  }
  linked(calculator("calc-tokens", [
    ...fields("llama-3.1-8b", "config.json of a model without latents and windows", headed),
    whole("tokens", "Tokens of the text", 32768, 1e7),
    whole("size", "Keep few: tokens", 1024, 1e7),
    whole("page", "Read few: tokens a page", 16, 1e5),
    whole("pages", "Read few: pages", 64, 1e6),
  ], ({ model: m, tokens, size, page, pages }) => {
    const all = T.everything(tokens, m.headDim);
    const inBytes = (n) => 2 * n * m.layers * m.kvHeads; // 16 bits a number
    const row = (name, cost) => [name, bytes(inBytes(cost.kept)), bytes(inBytes(cost.read)),
      `${((100 * cost.read) / all.read).toFixed(1)} %`];
    return [...m.notes, table([
      ["in 16 bits, one sequence", "kept", "read for a token", "share"],
      row("everything", all),
      row(`keep ${count(size)} tokens`, T.keepFew(tokens, m.headDim, size)),
      row(`keep all, read ${count(pages)} pages of ${count(page)}`,
        T.readFew(tokens, m.headDim, page, pages)),
    ])];
  }));

  /* Experts that a batch wakes (lab 13). */
  function mixture(m) {
    if (!m.experts) throw new calc.Fault("this model has no experts");
  }
  linked(calculator("calc-experts", [
    ...fields("mixtral-8x7b", "config.json of a mixture of experts", mixture),
    whole("batch", "Tokens in a step", 16, 1e6),
    { name: "weights", label: "Weights", options: formats, value: formats[0],
      parse: (name) => FORMATS[name] },
  ], ({ model: m, batch, weights }) => {
    const step = roofline.decode(m, 0, weights, half);
    const woken = (n) => roofline.woken(step.routed, step.used, n);
    const rows = [...new Set([1, 4, 16, 64, 256, batch])].sort((a, b) => a - b);
    const most = Math.max(64, 2 * batch);
    const line = (f) => Array.from({ length: 65 }, (_, i) => 1 + (i / 64) * (most - 1))
      .map((n) => [n, f(n)]);
    return [
      ...m.notes,
      table([
        ["tokens", `experts of ${count(step.routed)} awake`, "weights read", "a token"],
        ...rows.map((n) => [count(n), count(woken(n)), bytes(roofline.weightsRead(step, n)),
          bytes(roofline.weightsRead(step, n) / n)]),
      ]),
      calc.chart.lines([
        { name: "awake, of each layer", points: line(woken) },
        { name: "all", dashed: true, points: [[1, step.routed], [most, step.routed]] },
      ], { x: "tokens in a step", y: "experts",
        title: `${count(woken(batch))} of ${count(step.routed)} experts awake at ${count(batch)}` },
      [{ x: batch, y: woken(batch), text: count(woken(batch)) }]),
    ];
  }));

  /* The knee of a server (lab 14). */
  function points(text) {
    const rows = text.trim().split(/\n+/).map((line) => line.trim().split(/[\s,;]+/).map(Number));
    for (const row of rows) {
      const right = row.length === 2 && row[0] > 0 && row[1] >= 0 && row[1] <= 1;
      if (!right) throw new calc.Fault("a line is a rate above 0 and a share from 0 to 1: 30 0.97");
    }
    if (new Set(rows.map(([rate]) => rate)).size < rows.length) {
      throw new calc.Fault("a rate stands twice");
    }
    return rows.sort(([a], [b]) => a - b);
  }
  calculator("calc-knee", [
    { name: "points", label: "Requests a second, and the share of them within their limits",
      rows: 6, value: "20 1\n30 0.99\n40 0.95\n50 0.81\n60 0.42", parse: points },
    real("goal", "Share that is asked for", 0.9, 1),
  ], ({ points: measured, goal }) => {
    const at = T.knee(measured, goal);
    const last = measured[measured.length - 1];
    const never = at === last[0] && last[1] >= goal;
    return [
      table([
        ["", "requests a second"],
        ["knee", never ? `${count(at)} or more: no rate here falls below` : count(at)],
        ["goodput there, at least", count(at * goal)],
        ["most goodput of these rates", count(Math.max(...measured.map(([r, s]) => r * s)))],
      ]),
      calc.chart.lines([
        { name: "share within the limits", points: measured },
        { name: "asked for", dashed: true, points: [[0, goal], [last[0], goal]] },
      ], { x: "requests a second", y: "share", title: `The knee lies at ${count(at)}` },
      at > 0 ? [{ x: at, y: goal, text: count(at) }] : []),
    ];
  });

  /* Adapters' bills (lab 16). */
  linked(calculator("calc-bills", [
    ...fields("llama-3.1-8b", "config.json of a model without latents and experts", withoutExperts),
    whole("r", "LoRA: rank r", 16, 1e5),
    whole("m", "Adapter: width m", 64, 1e5),
    whole("n", "Prompt, prefix: tokens n", 20, 1e5),
  ], ({ model, r, m, n }) => {
    const whole = calc.decoder.parameters(model);
    const names = { lora: [`LoRA, r = ${r}`, r], adapter: [`adapter, m = ${m}`, m],
      prompt: [`prompt, n = ${n}`, n], prefix: [`prefix, n = ${n}`, n], bitfit: ["BitFit", 0] };
    const rows = Object.entries(names).map(([way, [name, size]]) => {
      const b = bills.bill(way, size, model);
      return [name, count(b.trained), `${((100 * b.trained) / whole).toPrecision(2)} %`,
        bytes(b.optimizerBytes), bytes(b.readBytes), count(b.flops), count(b.context)];
    });
    return [table([["way", "trained numbers", "of the model", "states of AdamW",
      "read a token more", "FLOPs a token more", "context lost"], ...rows])];
  }));

  /* Tensor or pipeline parallel (lab 17). */
  linked(calculator("calc-plans", [
    ...fields("llama-2-7b", "config.json of a model without latents and experts", withoutExperts),
    { name: "gpu", label: "GPU", options: Object.keys(GPUS), value: "H100", parse: (x) => GPUS[x] },
    whole("p", "Devices", 4, 1024, 2),
    whole("batch", "Sequences", 16, 4096),
    whole("cached", "Cached tokens", 0, 1e7, 0),
    real("alpha", "α, µs a message", 10, 1e6),
    real("speed", "Network, GB/s", 50, 1e5, 1e-3),
  ], ({ model: m, gpu, p, batch, cached, alpha, speed }) => {
    const step = roofline.decode(m, cached, half, half);
    const job = { layers: m.layers, weights: step.weights, cache: step.kv, flops: step.flops,
      row: 2 * m.hidden, bandwidth: gpu.bandwidth, peak: gpu.peak, alpha: alpha * 1e-6,
      beta: 1 / (speed * 1e9) };
    const tensor = plans.tensorStep(job, batch, p);
    const pipeline = plans.bestPipeline(job, batch, p);
    const better = plans.betterPlan(job, batch, p);
    const alone = plans.tensorStep(job, batch, 1);
    const apart = plans.tensorStep(job, Math.ceil(batch / p), 1);
    const needed = memory.devicesNeeded(m, gpu.memory * memory.GiB, Math.max(1, cached),
      Math.ceil(batch / p), half, half, 10);
    const faster = (t) => `${count(alone / t)} times one device`;
    const batches = [...new Set([1, 4, 16, 64, 256, batch])].sort((a, b) => a - b);
    const line = (f) => batches.map((b) => [b, 1e3 * f(b)]);
    return [
      ...m.notes,
      table([
        ["a step in 16 bits", "at least", ""],
        ["tensor parallel", seconds(tensor), faster(tensor)],
        [`pipeline, ${count(pipeline.micro)} micro-batches`, seconds(pipeline.seconds),
          faster(pipeline.seconds)],
        ["better of the two", better.plan, ""],
        ["control: a whole copy on each device", seconds(apart),
          needed > 1 ? "does not fit on one" : faster(apart)],
      ]),
      calc.chart.lines([
        { name: "tensor", points: line((b) => plans.tensorStep(job, b, p)) },
        { name: "pipeline", points: line((b) => plans.bestPipeline(job, b, p).seconds),
          dashed: true },
      ], { x: "sequences", y: "ms of a step", title: `${better.plan} is faster at ${batch}` }),
    ];
  }));
});
