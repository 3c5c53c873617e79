/* The shapes of a decoder from its config.json, and its parameters: efflib/serving/decoder.py.

   attention   2 D H d + 2 D Hkv d        q and o; k and v
   latent      D r_q + r_q H (n + p) + D (r + p) + r H (n + d_v) + H d_v D
   MLP         3 D I                      gate, up and down
   experts     3 D I_e (routed + shared) + D routed

   Files here are classic scripts and not modules, so that the page also works when it is opened
   from a disk. Each adds one object of functions to `calc`. */
"use strict";
globalThis.calc ??= {};

calc.Fault = class extends Error {}; // input that is wrong, in a sentence for the page

calc.decoder = (() => {
  const BIASES = ["qwen2"]; // q, k and v have them
  const HEAD_NORMS = ["qwen3"]; // RMSNorm of each query and key
  const TIED = ["gemma"]; // where config.json does not say it
  const LATENT = ["deepseek_v2", "deepseek_v3"];
  const FAMILIES = ["llama", "mistral", "mixtral", ...BIASES, ...HEAD_NORMS, ...TIED, ...LATENT];

  function whole(raw, name, least = 1) {
    if (!(name in raw)) throw new calc.Fault(`the config lacks ${name}`);
    if (!Number.isSafeInteger(raw[name]) || raw[name] < least) {
      const got = JSON.stringify(raw[name]);
      throw new calc.Fault(`${name} is ${got}: it must be a whole number of at least ${least}`);
    }
    return raw[name];
  }

  const optional = (raw, name, otherwise) =>
    raw[name] === undefined || raw[name] === null || raw[name] === 0
      ? otherwise
      : whole(raw, name);

  function latent(raw) {
    return {
      rank: whole(raw, "kv_lora_rank"), // r: one vector a token for all heads
      rope: whole(raw, "qk_rope_head_dim"), // p: the key with the position
      nope: whole(raw, "qk_nope_head_dim"), // n: a head's key without position
      value: whole(raw, "v_head_dim"), // d_v: a head's value
      queryRank: optional(raw, "q_lora_rank", null), // r_q
    };
  }

  function experts(raw, family) {
    let found = null;
    if (family === "mixtral") {
      const [routed, width] = [whole(raw, "num_local_experts"), whole(raw, "intermediate_size")];
      found = { routed, used: whole(raw, "num_experts_per_tok"), shared: 0, width, denseLayers: 0 };
    } else if (LATENT.includes(family) && raw.n_routed_experts) {
      found = {
        routed: whole(raw, "n_routed_experts"),
        used: whole(raw, "num_experts_per_tok"),
        shared: whole(raw, "n_shared_experts", 0),
        width: whole(raw, "moe_intermediate_size"),
        denseLayers: whole(raw, "first_k_dense_replace", 0),
      };
    }
    if (found && found.used > found.routed) {
      throw new calc.Fault(`a token uses ${found.used} of only ${found.routed} experts`);
    }
    return found;
  }

  function fromConfig(raw) {
    if (raw === null || typeof raw !== "object" || Array.isArray(raw)) {
      throw new calc.Fault("a config is an object: { … }");
    }
    const family = raw.model_type ?? "llama";
    if (!FAMILIES.includes(family)) {
      throw new calc.Fault(`model_type "${family}" is not known, only ${FAMILIES.join(", ")}`);
    }
    const [hidden, heads] = [whole(raw, "hidden_size"), whole(raw, "num_attention_heads")];
    const m = {
      hidden,
      heads,
      layers: whole(raw, "num_hidden_layers"),
      kvHeads: optional(raw, "num_key_value_heads", heads),
      headDim: optional(raw, "head_dim", Math.floor(hidden / heads)),
      intermediate: whole(raw, "intermediate_size"),
      vocab: whole(raw, "vocab_size"),
      tied: raw.tie_word_embeddings ?? TIED.includes(family),
      bias: BIASES.includes(family) || !!raw.attention_bias,
      outBias: !!raw.attention_bias,
      headNorms: HEAD_NORMS.includes(family),
      window: (raw.use_sliding_window ?? true) ? optional(raw, "sliding_window", null) : null,
      latent: LATENT.includes(family) ? latent(raw) : null,
      experts: experts(raw, family),
    };
    if (m.headDim < 1) throw new calc.Fault(`${heads} heads share only ${hidden} channels`);
    if (m.heads % m.kvHeads) {
      throw new calc.Fault(`${m.heads} query heads must be a multiple of ${m.kvHeads} key heads`);
    }
    return m;
  }

  /* Parameters of one layer's attention. */
  function attention(m) {
    const { heads: h, hidden: D, latent: c } = m;
    if (c) {
      const turned = c.nope + c.rope;
      const r = c.queryRank;
      const q = r === null ? D * h * turned : D * r + r + r * h * turned; // with the norm between
      const kv = D * (c.rank + c.rope) + c.rank + c.rank * h * (c.nope + c.value);
      return q + kv + h * c.value * D;
    }
    const both = (h + 2 * m.kvHeads) * m.headDim;
    return D * both + h * m.headDim * D + m.bias * both + m.outBias * D + m.headNorms * 2 * m.headDim;
  }

  /* Parameters of a layer's MLP; active: those that one token uses. */
  function mlp(m, layer, active) {
    const e = m.experts;
    if (!e || layer < e.denseLayers) return 3 * m.hidden * m.intermediate;
    const chosen = active ? e.used : e.routed;
    return 3 * m.hidden * e.width * (chosen + e.shared) + m.hidden * e.routed;
  }

  /* Parameters of all layers, norms included. */
  function inLayers(m, active = false) {
    let sum = m.layers * (attention(m) + 2 * m.hidden);
    for (let i = 0; i < m.layers; i++) sum += mlp(m, i, active);
    return sum;
  }

  /* Parameters of the layers' matrices: what is quantized. */
  function matrices(m, active = false) {
    let vectors = 2 * m.hidden + m.bias * (m.heads + 2 * m.kvHeads) * m.headDim;
    vectors += m.outBias * m.hidden + m.headNorms * 2 * m.headDim;
    if (m.latent) vectors = 2 * m.hidden + m.latent.rank + (m.latent.queryRank ?? 0);
    return inLayers(m, active) - m.layers * vectors;
  }

  const embedding = (m) => m.vocab * m.hidden;
  const parameters = (m, active = false) =>
    inLayers(m, active) + (m.tied ? 1 : 2) * embedding(m) + m.hidden;

  return { fromConfig, inLayers, matrices, embedding, parameters };
})();
