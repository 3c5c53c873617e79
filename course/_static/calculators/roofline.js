/* The least time of prefill and of decoding, from bytes and FLOPs: efflib/serving/roofline.py.

   step     = max( (weight bytes + B kv bytes) / bandwidth,   B flops / peak )        [seconds]
   rate     = B / step                                                     [tokens per second]
   ridge    = weight bytes / bandwidth / (flops / peak - kv bytes / bandwidth)     [sequences]
   latency  = TTFT + (n - 1) TPOT        TTFT: the prefill; TPOT: the mean of the steps behind it

   A machine is {bandwidth, peak}, bytes and FLOPs per second. All of these are bounds: what is
   measured takes longer. */
"use strict";

calc.roofline = (() => {
  const { inLayers, matrices, embedding } = calc.decoder;
  const { perValue, kvBytes, kept } = calc.memory;

  /* FLOPs of one query and one key in all layers. With a latent, decoding multiplies vectors of r
     values (up-projections folded away); prefill makes keys and values of each head. */
  function pairFlops(m, decoding) {
    let width = 2 * m.headDim;
    const c = m.latent;
    if (c) width = decoding ? 2 * c.rank + c.rope : c.nope + c.rope + c.value;
    return 2 * m.layers * m.heads * width;
  }

  /* Bytes of the weights that a step reads: not the token table; of experts, those of a token. */
  function read(m, weights) {
    const stored = matrices(m, true);
    const vectors = inLayers(m, true) - stored + m.hidden;
    return (stored * perValue(weights) + 16 * (vectors + embedding(m))) / 8;
  }

  /* A decoding step with so many tokens in the cache. */
  function decode(m, tokens, weights, cache) {
    const flops = 2 * (inLayers(m, true) + m.hidden + embedding(m));
    return {
      weights: read(m, weights),
      kv: kvBytes(m, tokens, 1, cache),
      flops: flops + kept(m, tokens) * pairFlops(m, true),
    };
  }

  /* The step that reads a prompt: token i attends to i tokens, less outside a window. */
  function prefill(m, tokens, weights, cache) {
    const w = kept(m, tokens);
    const pairs = (w * (w + 1)) / 2 + (tokens - w) * w;
    const flops = 2 * (tokens * inLayers(m, true) + m.hidden + embedding(m));
    return {
      weights: read(m, weights),
      kv: kvBytes(m, tokens, 1, cache),
      flops: flops + pairs * pairFlops(m, false),
    };
  }

  const reading = (step, machine, batch) => (step.weights + batch * step.kv) / machine.bandwidth;
  const computing = (step, machine, batch) => (batch * step.flops) / machine.peak;
  const seconds = (step, machine, batch) =>
    Math.max(reading(step, machine, batch), computing(step, machine, batch));

  const tokensPerSecond = (step, machine, batch) => batch / seconds(step, machine, batch);

  /* The batch from which on a step is bound by computing; Infinity if reading takes longer. */
  function ridge(step, machine) {
    const lead = step.flops / machine.peak - step.kv / machine.bandwidth; // of one more sequence
    return lead > 0 ? step.weights / machine.bandwidth / lead : Infinity;
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

  return { decode, prefill, reading, computing, seconds, tokensPerSecond, ridge, latency };
})();
