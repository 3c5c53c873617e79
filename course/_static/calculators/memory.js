/* Memory of a model in bytes: efflib/serving/memory.py.

   cache of a token    2 L Hkv d  values        L layers, Hkv key heads of size d
   with a latent       L (r + p)  values        one vector and one key for all heads
   T tokens            T of them, in a layer with a window w min(T, w)
   in b bits           values (b + metadata / G) / 8 bytes, a group of G sharing its scale
   sequences that fit  floor( (memory (1 - reserve) - parameters) / (tokens x cache of a token) )

   MHA, GQA and MQA differ in Hkv alone. A format is {bits, group, metadata}; group 1 and metadata 0
   where values share nothing. Floors are taken of whole numbers (BigInt): a floor one below the
   truth is a sequence that is turned away. */
"use strict";

calc.memory = (() => {
  const { matrices, parameters, kept, windowLayers } = calc.decoder;
  const GiB = 2 ** 30;

  const perValue = (format) => format.bits + format.metadata / format.group;

  /* Numbers that one token adds to the cache of one layer. */
  const layerValues = (m) =>
    m.latent ? m.latent.rank + m.latent.rope : 2 * m.kvHeads * m.headDim;

  const kvBytes = (m, tokens, batch, cache) =>
    (batch * kept(m, tokens) * layerValues(m) * perValue(cache)) / 8;

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

  /* Whole numbers in one unit, 1 / (800 Gw Gc) byte: what is usable, the weights, one token in one
     layer. */
  function counted(m, bytes, weights, cache, reservePercent) {
    const [gw, gc] = [BigInt(weights.group), BigInt(cache.group)];
    const coded = (format) => BigInt(format.bits) * BigInt(format.group) + BigInt(format.metadata);
    const quantized = BigInt(matrices(m));
    const others = BigInt(parameters(m)) - quantized;
    return {
      usable: 8n * BigInt(bytes) * BigInt(100 - reservePercent) * gw * gc,
      stored: 100n * gc * (quantized * coded(weights) + 16n * others * gw),
      token: 100n * gw * BigInt(layerValues(m)) * coded(cache),
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
    const places = usable <= stored ? 0 : Number((usable - stored) / (BigInt(batch) * token));
    const tokens = Math.floor(places / m.layers);
    if (m.window === null || tokens < m.window) return tokens;
    if (!m.fullLayers) return Infinity;
    return Math.floor((places - windowLayers(m) * m.window) / m.fullLayers);
  }

  /* Devices of so many bytes whose memories together hold weights and cache; 1: it fits. */
  function devicesNeeded(m, bytes, tokens, batch, weights, cache, reservePercent) {
    const { usable, stored, token } = counted(m, bytes, weights, cache, reservePercent);
    const all = stored + BigInt(batch) * BigInt(kept(m, tokens)) * token;
    return Math.max(1, Number((all + usable - 1n) / usable));
  }

  return { GiB, perValue, layerValues, kvBytes, weightBytes, activationBytes, sequences,
           longestContext, devicesNeeded };
})();
