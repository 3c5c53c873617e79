/* What a pass computes and moves, and where two limits change places: efflib/models/cost.py,
   efflib/serving/limits.py and efflib/serving/energy.py.

   matrices of a layer  w = D (2 H d + 2 Hkv d) + 3 D I
   pairs                p = n c + n (n + 1) / 2            n new tokens behind c cached ones
   FLOPs                2 n w and 4 H d p for each layer and sequence, 2 V D for its last token
   bytes                weights once, 2 Hkv d values for each token of each sequence
   batch                W / (f / ridge - c)                f, c: FLOPs and cache of one sequence
   context              (f0 - ridge c') / (ridge c' - f')  from here on no batch computes
   joules               prices times FLOPs, bytes and the least time; each sentence pays 1 / B */
"use strict";

calc.limits = (() => {
  const PARTS = ["matrices", "attention", "head"];

  function layerWeights(m) {
    if (m.latent || m.experts || m.window) {
      throw new calc.Fault("latents, experts and windows are not counted here: see the roofline");
    }
    return m.hidden * (2 * (m.heads + m.kvHeads) * m.headDim + 3 * m.intermediate);
  }

  const pairs = (fresh, cached) => fresh * cached + (fresh * (fresh + 1)) / 2;

  /* Parts of a pass: {flops, weights, cache}, the last two in bytes. */
  function parts(m, fresh, cached, batch, bits, kvBits) {
    const [w, head] = [m.layers * layerWeights(m), m.vocab * m.hidden];
    const met = 4 * m.layers * m.heads * m.headDim * pairs(fresh, cached);
    const kept = 2 * m.layers * m.kvHeads * m.headDim * (cached + fresh);
    return {
      matrices: { flops: 2 * batch * fresh * w, weights: (w * bits) / 8, cache: 0 },
      attention: { flops: batch * met, weights: 0, cache: (batch * kept * kvBits) / 8 },
      head: { flops: 2 * batch * head, weights: (head * bits) / 8, cache: 0 },
    };
  }

  function total(m, fresh, cached, batch, bits, kvBits) {
    const all = parts(m, fresh, cached, batch, bits, kvBits);
    const sum = (name) => PARTS.reduce((so_far, part) => so_far + all[part][name], 0);
    return { flops: sum("flops"), weights: sum("weights"), cache: sum("cache") };
  }

  const moved = (part) => part.weights + part.cache;
  const intensity = (part) => part.flops / moved(part);
  const ridge = (machine) => machine.peak / machine.bandwidth;
  const seconds = (part, machine) =>
    Math.max(part.flops / machine.peak, moved(part) / machine.bandwidth);
  const inTurn = (all, machine) =>
    PARTS.reduce((so_far, part) => so_far + seconds(all[part], machine), 0);

  function ridgeBatch(m, cached, machine, bits, kvBits) {
    const one = total(m, 1, cached, 1, bits, kvBits);
    const lead = one.flops / ridge(machine) - one.cache;
    return lead > 0 ? one.weights / lead : Infinity;
  }

  function ridgeContext(m, machine, kvBits) {
    const [none, one] = [0, 1].map((cached) => total(m, 1, cached, 1, 16, kvBits));
    const [flops, bytes] = [one.flops - none.flops, one.cache - none.cache];
    const lead = bytes * ridge(machine) - flops;
    if (lead <= 0) return Infinity;
    return Math.max(0, (none.flops - none.cache * ridge(machine)) / lead);
  }

  /* For each of `batch` sentences of `fresh` tokens; prices: {flop, byte, watts}. */
  function joules(m, prompt, fresh, machine, prices, batch, bits, kvBits) {
    const price = (part) => prices.flop * part.flops + prices.byte * moved(part)
      + prices.watts * seconds(part, machine);
    let sum = price(total(m, prompt, 0, batch, bits, kvBits));
    for (let made = 1; made < fresh; made++) {
      sum += price(total(m, 1, prompt + made - 1, batch, bits, kvBits));
    }
    return sum / batch;
  }

  return { layerWeights, pairs, parts, total, moved, intensity, ridge, seconds, inTurn, ridgeBatch,
    ridgeContext, joules };
})();
