/* The calculators of speculation and of formats. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const { calculator, table, count } = calc.ui;
  const { speculation, formats } = calc;
  const real = (name, label, value, most) =>
    ({ name, label, value, least: 0, most, whole: false });
  const whole = (name, label, value, most) => ({ name, label, value, least: 1, most });

  calculator("calc-speculation", [
    real("a", "a: share of accepted guesses", 0.8, 1),
    real("c", "c: cost of a draft pass", 0.1, 10),
    real("w", "w: cost of a checked token", 0, 10),
    whole("most", "Longest draft", 16, 64),
  ], ({ a, c, w, most }) => {
    const best = speculation.best(a, c, w, most);
    const all = Array.from({ length: most + 1 }, (_, g) => g);
    const shown = all.filter((g) => g < 6 || g === best || g === most);
    const speed = speculation.speedup(a, best, c, w);
    return [
      table([
        ["draft length g", "tokens a round, E", "speed-up, S"],
        ...shown.map((g) => [g === best ? `${g} (best)` : `${g}`,
          speculation.expectedTokens(a, g).toFixed(3),
          speculation.speedup(a, g, c, w).toFixed(3)]),
      ]),
      calc.chart.lines([
        { name: "S", points: all.map((g) => [g, speculation.speedup(a, g, c, w)]) },
        { name: "no speculation", points: [[0, 1], [most, 1]], dashed: true },
      ], { x: "draft length g", y: "times plain decoding",
        title: `Speed-up against the draft length, best ${count(speed)} at ${best}` },
      [{ x: best, y: speed, text: `${speed.toFixed(2)} at g = ${best}` }]),
    ];
  });

  calculator("calc-formats", [
    whole("rows", "Rows, N (outputs)", 4096, 1e6),
    whole("columns", "Columns, K (inputs)", 4096, 1e6),
    { name: "bits", label: "Bits of a code", value: 4, least: 2, most: 8 },
    whole("group", "Group, G", 128, 1e6),
  ], ({ rows: n, columns: k, bits: b, group: g }) => {
    const all = [
      ["float16", 16 * n * k],
      [`linear, ${b} bits, one scale a tensor`, formats.linear(n, k, b, "tensor", true)],
      [`linear, ${b} bits, a scale a row`, formats.linear(n, k, b, "channel", true)],
      [`linear, ${b} bits, a scale for ${g}`, formats.linear(n, k, b, g, true)],
      [`linear, ${b} bits, scale and zero point for ${g}`, formats.linear(n, k, b, g, false)],
      [`GPTQ in act-order, ${b} bits, for ${g}, and g_idx`, formats.indexed(n, k, b, g, false)],
      [`k-means, ${b} bits, one codebook a tensor`, formats.codebook(n, k, b, "tensor")],
      [`k-means, ${b} bits, a codebook a row`, formats.codebook(n, k, b, "channel")],
      [`k-means, ${b} bits, a codebook for ${g}`, formats.codebook(n, k, b, g)],
      ["NF4, blocks of 64", formats.nf4(n, k, false)],
      ["NF4, doubly quantized", formats.nf4(n, k, true)],
      ["2:4 sparse, 16 bits", formats.twoOfFour(n, k, 16)],
      ["2:4 sparse, 8 bits", formats.twoOfFour(n, k, 8)],
    ];
    const each = (bits) => (bits / (n * k)).toFixed(3);
    return [table([
      ["format", "bits a weight", "of float16"],
      ...all.map(([name, bits]) => bits === null ? [name, "K is no multiple of 4", ""]
        : [name, each(bits), `${((100 * bits) / (16 * n * k)).toFixed(1)} %`]),
    ])];
  });
});
