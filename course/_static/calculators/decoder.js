/* The shapes of a decoder, and what follows from them: efflib/serving/shapes.py.

   attention   2 D H d + 2 D Hkv d        q and o; k and v
   latent      D r_q + r_q H (n + p) + D (r + p) + r H (n + d_v) + H d_v D
   MLP         3 D I                      gate, up and down
   experts     3 D I_e (routed + shared) + D routed
   kept by a layer of window w     min(T, w)            of T tokens
   seen by its newest token        min(T, w);  ((T - 1) mod w) + 1 where windows are chunks

   families.js reads the shapes. Files here are classic scripts and not modules, so that the page
   also works when it is opened from a disk. Each adds one object of functions to `calc`. */
"use strict";
globalThis.calc ??= {};

calc.Fault = class extends Error {}; // input that is wrong, in a sentence for the page

calc.decoder = (() => {
  /* Weights of the matrices of one layer's attention. */
  function inAttention(m) {
    const { heads: h, hidden: D, latent: c } = m;
    if (!c) return D * (h + 2 * m.kvHeads) * m.headDim + h * m.headDim * D;
    const turned = c.nope + c.rope;
    const r = c.queryRank;
    const q = r === null ? D * h * turned : D * r + r * h * turned;
    return q + D * (c.rank + c.rope) + c.rank * h * (c.nope + c.value) + h * c.value * D;
  }

  /* Parameters of one layer outside of matrices and experts: norms, biases, sinks. */
  function vectors(m) {
    const c = m.latent;
    let more = m.norms * m.hidden + m.outBias * m.hidden + m.headNorms * 2 * m.headDim;
    let both = (m.heads + 2 * m.kvHeads) * m.headDim;
    if (c) {
      both = c.queryRank + c.rank + c.rope; // biases of the projections down; null counts 0
      more += c.queryRank + c.rank; // the norms between
    }
    return more + m.bias * both + m.sinks * m.heads;
  }

  const sparseLayers = (m) => (m.experts ? Math.max(0, m.layers - m.experts.denseLayers) : 0);
  /* Weights and biases of one expert in one layer. */
  const expert = (m) => (m.experts ? 3 * m.hidden * m.experts.width : 0);
  const expertBias = (m) => (m.experts?.bias ? 2 * m.experts.width + m.hidden : 0);

  /* Weights of all layers' matrices: what is quantized; active: those that one token uses. */
  function matrices(m, active = false) {
    const [e, sparse] = [m.experts, sparseLayers(m)];
    let sum = m.layers * inAttention(m) + (m.layers - sparse) * 3 * m.hidden * m.intermediate;
    if (e) {
      const chosen = (active ? e.used : e.routed) + e.shared;
      sum += sparse * (expert(m) * chosen + m.hidden * e.routed);
    }
    return sum;
  }

  /* Parameters of all layers, norms included. */
  function inLayers(m, active = false) {
    const e = m.experts;
    let sum = matrices(m, active) + m.layers * vectors(m);
    if (e?.bias) sum += sparseLayers(m) * ((active ? e.used : e.routed) * expertBias(m) + e.routed);
    return sum;
  }

  const embedding = (m) => m.vocab * m.hidden;
  const parameters = (m, active = false) =>
    inLayers(m, active) + (m.tied ? 1 : 2) * embedding(m) + m.hidden;

  /* Tokens, each counted in every layer that has it. */
  const windowLayers = (m) => (m.window === null ? 0 : m.layers - m.fullLayers);
  const kept = (m, tokens) =>
    (m.layers - windowLayers(m)) * tokens + windowLayers(m) * Math.min(tokens, m.window ?? tokens);

  /* Tokens that the newest of so many attends to, itself included, in all layers. */
  function seen(m, tokens) {
    if (!m.chunked || tokens === 0) return kept(m, tokens);
    return m.fullLayers * tokens + windowLayers(m) * (((tokens - 1) % m.window) + 1);
  }

  /* Queries and keys that meet while so many tokens are read: the sum of `seen` over them. */
  function pairs(m, tokens) {
    const triangle = (n) => (n * (n + 1)) / 2;
    if (m.window === null) return m.layers * triangle(tokens);
    const w = Math.min(m.window, tokens);
    const near = m.chunked
      ? Math.floor(tokens / w) * triangle(w) + triangle(tokens % w)
      : triangle(w) + (tokens - w) * w;
    return (m.layers - windowLayers(m)) * triangle(tokens) + windowLayers(m) * near;
  }

  return { sparseLayers, expert, expertBias, matrices, inLayers, embedding, parameters,
           windowLayers, kept, seen, pairs };
})();
