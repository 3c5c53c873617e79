/* The least time of prefill and of decoding, from bytes and FLOPs: efflib/serving/roofline.py.

   step     = max( (weight bytes + B kv bytes) / bandwidth,   B flops / peak )        [seconds]
   rate     = B / step                                                     [tokens per second]
   ridge    = weight bytes / bandwidth / (flops / peak - kv bytes / bandwidth)     [sequences]
   woken    = E (1 - (1 - k / E)^tokens)     experts of a layer that so many tokens wake, by lot
   latency  = TTFT + (n - 1) TPOT        TTFT: the prefill; TPOT: the mean of the steps behind it

   A machine is {bandwidth, peak}, bytes and FLOPs per second. All of these are bounds: what is
   measured takes longer. */
"use strict";

calc.roofline = (() => {
  const { inLayers, matrices, embedding, sparseLayers, expert, expertBias, kept, seen, pairs } =
    calc.decoder;
  const { perValue, layerValues } = calc.memory;

  /* FLOPs of one query and one key in all layers. With a latent, decoding multiplies vectors of r
     values (up-projections folded away); prefill makes keys and values of each head. */
  function pairFlops(m, decoding) {
    let width = 2 * m.headDim;
    const c = m.latent;
    if (c) width = decoding ? 2 * c.rank + c.rope : c.nope + c.rope + c.value;
    return 2 * m.layers * m.heads * width;
  }

  /* What a step reads: not the token table; of experts, those that are shared and those woken.
     expert: bytes of one routed expert in all layers; tokens: of each sequence, in this step. */
  function step(m, tokens, there, weights, cache, flops) {
    const [e, sparse] = [m.experts, sparseLayers(m)];
    let stored = matrices(m, true);
    let others = inLayers(m, true) - stored;
    let [one, routed, used] = [0, 1, 1];
    if (sparse) {
      [routed, used] = [e.routed, e.used];
      const [weight, bias] = [sparse * expert(m), sparse * expertBias(m)];
      [stored, others] = [stored - used * weight, others - used * bias];
      one = (weight * perValue(weights) + 16 * bias) / 8;
    }
    const read = (stored * perValue(weights) + 16 * (others + m.hidden + embedding(m))) / 8;
    const kv = (there * layerValues(m) * perValue(cache)) / 8;
    return { weights: read, kv, flops, expert: one, routed, used, tokens };
  }

  /* A decoding step with so many tokens in the cache. */
  function decode(m, tokens, weights, cache) {
    const flops = 2 * (inLayers(m, true) + m.hidden + embedding(m));
    const met = (seen(m, tokens) * pairFlops(m, true)) / m.layers;
    return step(m, 1, seen(m, tokens), weights, cache, flops + met);
  }

  /* The step that reads a prompt: token i attends to i tokens, less outside a window. */
  function prefill(m, tokens, weights, cache) {
    const flops = 2 * (tokens * inLayers(m, true) + m.hidden + embedding(m));
    const met = (pairs(m, tokens) * pairFlops(m, false)) / m.layers;
    return step(m, tokens, kept(m, tokens), weights, cache, flops + met);
  }

  /* Experts of a layer that so many tokens wake in the mean, if each chose `used` by lot. */
  const woken = (routed, used, tokens) => routed * (1 - (1 - used / routed) ** tokens);

  const weightsRead = (step, batch) =>
    step.weights + step.expert * woken(step.routed, step.used, batch * step.tokens);

  const reading = (step, machine, batch) =>
    (weightsRead(step, batch) + batch * step.kv) / machine.bandwidth;
  const computing = (step, machine, batch) => (batch * step.flops) / machine.peak;
  const seconds = (step, machine, batch) =>
    Math.max(reading(step, machine, batch), computing(step, machine, batch));

  const tokensPerSecond = (step, machine, batch) => batch / seconds(step, machine, batch);

  /* The batch from which on a step is bound by computing; Infinity if reading takes longer. With
     experts it lies between the ridge without routed ones and that with all of them awake. */
  function ridge(step, machine) {
    const lead = step.flops / machine.peak - step.kv / machine.bandwidth; // of one more sequence
    if (lead <= 0) return Infinity;
    let low = step.weights / machine.bandwidth / lead;
    let high = (step.weights + step.expert * step.routed) / machine.bandwidth / lead;
    while (step.expert) {
      const middle = (low + high) / 2;
      if (middle === low || middle === high) break;
      const behind = weightsRead(step, middle) / machine.bandwidth <= middle * lead;
      [low, high] = behind ? [low, middle] : [middle, high];
    }
    return high;
  }

  /* `batch` requests of `prompt` tokens together, each of which makes `fresh` tokens. */
  function latency(m, machine, prompt, fresh, batch, weights, cache) {
    const ttft = seconds(prefill(m, prompt, weights, cache), machine, batch);
    let rest = 0;
    for (let i = 1; i < fresh; i++) {
      rest += seconds(decode(m, prompt + i, weights, cache), machine, batch);
    }
    return { ttft, tpot: fresh > 1 ? rest / (fresh - 1) : 0, total: ttft + rest };
  }

  return { decode, prefill, woken, weightsRead, reading, computing, seconds, tokensPerSecond, ridge, latency };
})();
