/* What a way of adapting a model costs: efflib/finetuning/bills.py.

   way        size   trained numbers          decoding, beside the base, a token of a row
   lora       r      r (N + K), 7 linears     2 FLOPs a trained number; all of them read
   adapter    m      2 (2 D m + m + D)        8 D m FLOPs a block;      all of them read
   prompt     n      n D                      4 n H d FLOPs a block; n 2 Hkv d numbers read
   prefix     n      n L 2 Hkv d              as a prompt of n
   bitfit     -      N, 7 linears             a sum; all of them read
   random     n      n                        nothing: they lie in the weights */
"use strict";
globalThis.calc ??= {};

calc.bills = (() => {
  const WAYS = ["lora", "adapter", "prompt", "prefix", "bitfit", "random"];
  const [STATES, HALF] = [8, 2]; // bytes: AdamW's two float32, a 16-bit number

  /* [N, K] of q, k, v, o, gate, up, down. */
  function blockLinears(m) {
    const [d, f, q, kv] = [m.hidden, m.intermediate, m.heads * m.headDim, m.kvHeads * m.headDim];
    return [[q, d], [kv, d], [kv, d], [d, q], [f, d], [f, d], [d, f]];
  }

  function bill(way, size, m) {
    const keys = m.layers * 2 * m.kvHeads * m.headDim; // and values, of one position
    const over = (f) => m.layers * blockLinears(m).reduce((sum, [n, k]) => sum + f(n, k), 0);
    const trained = {
      lora: over((n, k) => size * (n + k)),
      adapter: m.layers * 2 * (2 * m.hidden * size + size + m.hidden),
      prompt: size * m.hidden,
      prefix: size * keys,
      bitfit: over((n) => n),
      random: size,
    }[way];
    const before = ["prompt", "prefix"].includes(way) ? size : 0;
    const own = { lora: 2 * trained, adapter: m.layers * 8 * m.hidden * size }[way] ?? 0;
    const beside = ["lora", "adapter", "bitfit"].includes(way) ? trained : before * keys;
    return {
      trained,
      optimizerBytes: STATES * trained,
      flops: own + 4 * before * m.layers * m.heads * m.headDim,
      readBytes: HALF * beside,
      context: before, // positions that the text loses
    };
  }

  return { WAYS, blockLinears, bill };
})();
