/* Models, GPUs and formats to choose from: the tables of efflib/serving/decoder.py, memory.py and
   efflib/meter/roofline.py. Models as the fields of their config.json that count. */
"use strict";

calc.tables = (() => {
  const llama = (layers, hidden, heads, kvHeads, intermediate, vocab, more = {}) => ({
    model_type: "llama",
    num_hidden_layers: layers,
    hidden_size: hidden,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    intermediate_size: intermediate,
    vocab_size: vocab,
    ...more,
  });

  const oss = (layers, experts) => llama(layers, 2880, 64, 8, 2880, 201088, {
    model_type: "gpt_oss",
    head_dim: 64,
    sliding_window: 128,
    num_local_experts: experts,
    num_experts_per_tok: 4,
  });

  const MODELS = {
    "llama-2-7b": llama(32, 4096, 32, 32, 11008, 32000),
    "llama-2-13b": llama(40, 5120, 40, 40, 13824, 32000),
    "llama-2-70b": llama(80, 8192, 64, 8, 28672, 32000),
    "llama-3.1-8b": llama(32, 4096, 32, 8, 14336, 128256),
    "llama-3.1-70b": llama(80, 8192, 64, 8, 28672, 128256),
    "llama-3.1-405b": llama(126, 16384, 128, 8, 53248, 128256),
    "mistral-7b": llama(32, 4096, 32, 8, 14336, 32000, {
      model_type: "mistral",
      sliding_window: 4096, // v0.1
    }),
    "mixtral-8x7b": llama(32, 4096, 32, 8, 14336, 32000, {
      model_type: "mixtral",
      num_local_experts: 8,
      num_experts_per_tok: 2,
    }),
    "qwen2.5-7b": llama(28, 3584, 28, 4, 18944, 152064, { model_type: "qwen2" }),
    "gemma-2b": llama(18, 2048, 8, 1, 16384, 256000, { model_type: "gemma", head_dim: 256 }),
    "deepseek-v3": llama(61, 7168, 128, 128, 18432, 129280, {
      model_type: "deepseek_v3",
      kv_lora_rank: 512,
      qk_rope_head_dim: 64,
      qk_nope_head_dim: 128,
      v_head_dim: 128,
      q_lora_rank: 1536,
      n_routed_experts: 256,
      num_experts_per_tok: 8,
      n_shared_experts: 1,
      moe_intermediate_size: 2048,
      first_k_dense_replace: 3,
    }),
    "qwen3-30b-a3b": llama(48, 2048, 32, 4, 6144, 151936, {
      model_type: "qwen3_moe",
      head_dim: 128,
      num_experts: 128,
      num_experts_per_tok: 8,
      moe_intermediate_size: 768,
    }),
    "gpt-oss-20b": oss(24, 32),
    "gpt-oss-120b": oss(36, 128),
    "gemma-3-27b": llama(62, 5376, 32, 16, 21504, 262208, {
      model_type: "gemma3_text",
      head_dim: 128,
      sliding_window: 1024,
    }),
    "phi-4": llama(40, 5120, 40, 10, 17920, 100352, { model_type: "phi3" }),
    "llama-4-scout": llama(48, 5120, 40, 8, 8192, 202048, {
      model_type: "llama4_text",
      intermediate_size_mlp: 16384,
      attention_chunk_size: 8192,
      num_local_experts: 16,
      num_experts_per_tok: 1,
    }),
  };

  const GPUS = {
    // GiB (datasheets write GB), bytes per second, dense fp16 FLOPs per second
    "RTX 4090": { memory: 24, bandwidth: 1.008e12, peak: 165.2e12 },
    A100: { memory: 80, bandwidth: 2.039e12, peak: 312e12 },
    H100: { memory: 80, bandwidth: 3.35e12, peak: 989.4e12 },
    H200: { memory: 141, bandwidth: 4.8e12, peak: 989.4e12 },
    B200: { memory: 180, bandwidth: 8e12, peak: 2250e12 },
  };

  const FORMATS = {
    "16 bits": { bits: 16, group: 1, metadata: 0 },
    "8 bits": { bits: 8, group: 1, metadata: 0 },
    "4 bits, groups of 128": { bits: 4, group: 128, metadata: 16 + 4 }, // AWQ, GPTQ: scale, zero
    "4 bits, groups of 32": { bits: 4, group: 32, metadata: 32 }, // KIVI: s and m in float16
    "3 bits, groups of 128": { bits: 3, group: 128, metadata: 16 + 3 },
    "2 bits, groups of 32": { bits: 2, group: 32, metadata: 32 },
  };

  return { MODELS, GPUS, FORMATS };
})();
