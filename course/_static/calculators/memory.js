/* Memory of a model in bytes: efflib/serving/memory.py.

   cache of a token    2 L Hkv d  values        L layers, Hkv key heads of size d
   with a latent       L (r + p)  values        one vector and one key for all heads
   in b bits           values (b + metadata / G) / 8 bytes, a group of G sharing its scale
   sequences that fit  floor( (memory (1 - reserve) - parameters) / (tokens x cache of a token) )

   MHA, GQA and MQA differ in Hkv alone. A format is {bits, group, metadata}; group 1 and metadata 0
   where values share nothing. Floors are taken of whole numbers (BigInt): a floor one below the
   truth is a sequence that is turned away. */
"use strict";

calc.memory = (() => {
  const { matrices, parameters } = calc.decoder;
  const GiB = 2 ** 30;

  const perValue = (format) => format.bits + format.metadata / format.group;

  /* Numbers that one token adds to the cache, in all layers. */
  function kvValues(m) {
    if (m.latent) return m.layers * (m.latent.rank + m.latent.rope);
    return 2 * m.layers * m.kvHeads * m.headDim;
  }

  /* A model with a window keeps no more tokens than that. */
  const kept = (m, tokens) => (m.window === null ? tokens : Math.min(tokens, m.window));

  const kvBytes = (m, tokens, batch, cache) =>
    (batch * kept(m, tokens) * kvValues(m) * perValue(cache)) / 8;

  /* Matrices of the layers in `weights`, all others (norms, token table, lm_head) in 16 bits. */
  function weightBytes(m, weights) {
    const quantized = matrices(m);
    return (quantized * perValue(weights) + 16 * (parameters(m) - quantized)) / 8;
  }

  /* The most that one pass over so many tokens holds: max( T (2 D + 3 I), T D + logits V ) values. */
  function activationBytes(m, tokens, logits) {
    let width = m.intermediate;
    const e = m.experts;
    if (e) width = Math.max(e.denseLayers ? m.intermediate : 0, e.width * (e.used + e.shared));
    const inside = tokens * (2 * m.hidden + 3 * width);
    return (Math.max(inside, tokens * m.hidden + logits * m.vocab) * 16) / 8;
  }

  /* Whole numbers in one unit, 1 / (800 Gw Gc) byte: what is usable, the weights, one token. */
  function counted(m, bytes, weights, cache, reservePercent) {
    const [gw, gc] = [BigInt(weights.group), BigInt(cache.group)];
    const coded = (format) => BigInt(format.bits) * BigInt(format.group) + BigInt(format.metadata);
    const quantized = BigInt(matrices(m));
    const others = BigInt(parameters(m)) - quantized;
    return {
      usable: 8n * BigInt(bytes) * BigInt(100 - reservePercent) * gw * gc,
      stored: 100n * gc * (quantized * coded(weights) + 16n * others * gw),
      token: 100n * gw * BigInt(kvValues(m)) * coded(cache),
    };
  }

  /* Sequences of so many tokens that fit beside the weights; 0 also where the weights do not. */
  function sequences(m, bytes, tokens, weights, cache, reservePercent) {
    const { usable, stored, token } = counted(m, bytes, weights, cache, reservePercent);
    if (usable <= stored) return 0;
    return Number((usable - stored) / (BigInt(kept(m, tokens)) * token));
  }

  /* Tokens that each of `batch` sequences may have; Infinity behind a window. */
  function longestContext(m, bytes, batch, weights, cache, reservePercent) {
    const { usable, stored, token } = counted(m, bytes, weights, cache, reservePercent);
    const tokens = usable <= stored ? 0 : Number((usable - stored) / (BigInt(batch) * token));
    return m.window !== null && tokens >= m.window ? Infinity : tokens;
  }

  return { GiB, perValue, kvValues, kept, kvBytes, weightBytes, activationBytes, sequences,
           longestContext };
})();
