/* Reads the shapes of a decoder from the fields of a config.json: efflib/serving/families.py, which
   says how the families differ. Only those that are listed are read. */
"use strict";

calc.families = (() => {
  const BIASES = ["qwen2"]; // q, k and v have them, whatever the config says
  const ASKED_BIASES = ["llama", "gemma", "gemma2", "gemma3_text", "qwen3", "qwen3_moe", "gpt_oss",
    "llama4_text", "deepseek_v2", "deepseek_v3"]; // q, k, v and o, if it says so
  const HEAD_NORMS = ["qwen3", "qwen3_moe", "gemma3_text"]; // RMSNorm of each query and key
  const FOUR_NORMS = ["gemma2", "gemma3_text"]; // also behind attention and MLP
  const TIED = ["gemma", "gemma2", "gemma3_text"]; // where config.json does not say it
  const LATENT = ["deepseek_v2", "deepseek_v3"];
  const WINDOWS = ["mistral", "mixtral", "phi3", "gemma2", "gemma3_text", "gpt_oss", "llama4_text"];
  const ASKED_WINDOWS = ["qwen2", "qwen3", "qwen3_moe"]; // if use_sliding_window
  const NESTED = { gemma3: "gemma3_text", llama4: "llama4_text" }; // the text model inside
  const FAMILIES = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2",
    "gemma3", "gemma3_text", "phi3", "gpt_oss", "llama4", "llama4_text", ...LATENT];
  const LEFT_OUT = { // of files that say nothing; Gemma 3's leave out even the heads
    mistral: { sliding_window: 4096 },
    gemma2: { sliding_window: 4096 },
    gemma3_text: { num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256,
      vocab_size: 262208, sliding_window: 4096 },
    gpt_oss: { sliding_window: 128, attention_bias: true },
    llama4_text: { attention_chunk_size: 8192 },
  };
  const KINDS = ["full_attention", "sliding_attention", "chunked_attention"];

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
  const number = (raw, name, otherwise) => (raw[name] === undefined ? otherwise : raw[name]);

  function latent(raw) {
    return {
      rank: whole(raw, "kv_lora_rank"), // r: one vector a token for all heads
      rope: whole(raw, "qk_rope_head_dim"), // p: the key with the position
      nope: whole(raw, "qk_nope_head_dim"), // n: a head's key without position
      value: whole(raw, "v_head_dim"), // d_v: a head's value
      queryRank: optional(raw, "q_lora_rank", null), // r_q
    };
  }

  /* Whether a layer has no window, where layer_types does not say it. */
  function keepsAll(raw, family, layer) {
    if (["qwen2", "qwen3"].includes(family)) return layer < number(raw, "max_window_layers", 28);
    if (["gemma2", "gpt_oss"].includes(family)) return layer % 2 === 1;
    if (family === "gemma3_text") return (layer + 1) % number(raw, "sliding_window_pattern", 6) === 0;
    if (family !== "llama4_text") return false;
    if (raw.no_rope_layers?.length) return !raw.no_rope_layers[layer];
    return (layer + 1) % number(raw, "no_rope_layer_interval", 4) === 0;
  }

  /* {window, fullLayers}: tokens that a layer keeps, layers that keep everything beside those. */
  function windows(raw, family, layers) {
    const none = { window: null, fullLayers: 0 };
    const asked = ASKED_WINDOWS.includes(family) && raw.use_sliding_window;
    if (!WINDOWS.includes(family) && !asked) return none;
    const name = family === "llama4_text" ? "attention_chunk_size" : "sliding_window";
    const window = optional(raw, name, null);
    const kinds = raw.layer_types ?? null;
    let fullLayers = 0;
    if (kinds === null) {
      for (let i = 0; i < layers; i++) fullLayers += keepsAll(raw, family, i);
    } else {
      if (kinds.length !== layers) {
        throw new calc.Fault(`layer_types names ${kinds.length} layers of ${layers}`);
      }
      const unknown = kinds.find((kind) => !KINDS.includes(kind));
      if (unknown) throw new calc.Fault(`layers of the kind "${unknown}" are not known`);
      fullLayers = kinds.filter((kind) => kind === "full_attention").length;
    }
    return window === null || fullLayers === layers ? none : { window, fullLayers };
  }

  /* Layers with experts, where it is not all behind the first ones. */
  function sparse(raw, family, layers) {
    const all = Array.from({ length: layers }, (_, i) => i);
    if (family === "qwen3_moe") {
      const [step, only] = [number(raw, "decoder_sparse_step", 1), raw.mlp_only_layers ?? []];
      return all.filter((i) => !only.includes(i) && (i + 1) % step === 0).length;
    }
    const step = number(raw, "interleave_moe_layer_step", 1);
    if (raw.moe_layers) return new Set(raw.moe_layers).size;
    return all.filter((i) => (i + 1) % step === 0).length;
  }

  function experts(raw, family, layers) {
    const used = (raw) => whole(raw, "num_experts_per_tok");
    const made = (routed, shared, width, denseLayers, bias = false) =>
      ({ routed, used: used(raw), shared, width, denseLayers, bias });
    if (["mixtral", "gpt_oss"].includes(family)) {
      const width = whole(raw, "intermediate_size");
      return made(whole(raw, "num_local_experts"), 0, width, 0, family === "gpt_oss");
    }
    if (family === "qwen3_moe") {
      const name = "num_experts" in raw ? "num_experts" : "num_local_experts";
      const [routed, there] = [whole(raw, name, 0), sparse(raw, family, layers)];
      if (!routed || !there) return null;
      return made(routed, 0, whole(raw, "moe_intermediate_size"), layers - there);
    }
    if (family === "llama4_text") {
      const there = sparse(raw, family, layers);
      const width = whole(raw, "intermediate_size");
      return there ? made(whole(raw, "num_local_experts"), 1, width, layers - there) : null;
    }
    if (!LATENT.includes(family) || !raw.n_routed_experts) return null;
    return made(whole(raw, "n_routed_experts"), whole(raw, "n_shared_experts", 0),
      whole(raw, "moe_intermediate_size"), whole(raw, "first_k_dense_replace", 0));
  }

  /* The fields of the text model; whether its tables are tied stands outside of it. */
  function textModel(raw) {
    const inside = raw.text_config;
    if (!inside || typeof inside !== "object") throw new calc.Fault("the config lacks text_config");
    const tied = raw.tie_word_embeddings;
    return tied === undefined ? inside : { ...inside, tie_word_embeddings: tied };
  }

  function decoder(raw, family) {
    const [hidden, heads] = [whole(raw, "hidden_size"), whole(raw, "num_attention_heads")];
    const layers = whole(raw, "num_hidden_layers");
    if (raw.mlp_bias) throw new calc.Fault("mlp_bias is not counted here");
    const biases = ASKED_BIASES.includes(family) && !!raw.attention_bias;
    const { window, fullLayers } = windows(raw, family, layers);
    const m = {
      hidden,
      heads,
      layers,
      kvHeads: optional(raw, "num_key_value_heads", heads),
      headDim: optional(raw, "head_dim", Math.floor(hidden / heads)),
      intermediate: whole(raw,
        family === "llama4_text" ? "intermediate_size_mlp" : "intermediate_size"),
      vocab: whole(raw, "vocab_size"),
      tied: raw.tie_word_embeddings ?? TIED.includes(family),
      bias: BIASES.includes(family) || biases,
      outBias: biases,
      headNorms: HEAD_NORMS.includes(family),
      window, // tokens that a layer keeps
      latent: LATENT.includes(family) ? latent(raw) : null,
      experts: experts(raw, family, layers),
      norms: FOUR_NORMS.includes(family) ? 4 : 2,
      sinks: family === "gpt_oss",
      fullLayers, // beside those with a window
      chunked: family === "llama4_text" && window !== null,
    };
    if (m.headDim < 1) throw new calc.Fault(`${heads} heads share only ${hidden} channels`);
    if (m.heads % m.kvHeads) {
      throw new calc.Fault(`${m.heads} query heads must be a multiple of ${m.kvHeads} key heads`);
    }
    if (m.experts && m.experts.used > m.experts.routed) {
      throw new calc.Fault(`a token uses ${m.experts.used} of only ${m.experts.routed} experts`);
    }
    return m;
  }

  function fromConfig(raw) {
    if (raw === null || typeof raw !== "object" || Array.isArray(raw)) {
      throw new calc.Fault("a config is an object: { … }");
    }
    const family = raw.model_type ?? "llama";
    if (!FAMILIES.includes(family)) {
      throw new calc.Fault(`model_type "${family}" is not known, only ${FAMILIES.join(", ")}`);
    }
    const inner = NESTED[family] ?? family;
    return decoder({ ...LEFT_OUT[inner], ...(NESTED[family] ? textModel(raw) : raw) }, inner);
  }

  return { fromConfig };
})();
