/* Bits of a stored weight [N, K] with all that is needed to read it back:
   efflib/quantization/size.py, gptq.py, nf4.py and efflib/sparsity/nm.py.

   linear:   N K b  +  groups (16 + zero bits)       zero bits b if asymmetric, else none
   g_idx:    32 K  more, for GPTQ in act-order with groups that follow the order
   k-means:  N K b  +  groups 2^b 16
   NF4:      N K 4  +  32 for 64 weights;  doubly quantized 8 for 64, 32 for 256 of those, one mean
   2:4:      N K / 2  values, an index of 2 bits for each

   groups: 1 for a tensor, N for channels (rows), N ceil(K / G) for groups of G. */
"use strict";
globalThis.calc ??= {};

calc.formats = (() => {
  const SCALE = 16; // bits of a scale, or of an entry of a codebook

  function groups(rows, columns, granularity) {
    if (granularity === "tensor") return 1;
    return granularity === "channel" ? rows : rows * Math.ceil(columns / granularity);
  }

  function linear(rows, columns, bits, granularity, symmetric) {
    const metadata = SCALE + (symmetric ? 0 : bits);
    return rows * columns * bits + groups(rows, columns, granularity) * metadata;
  }

  const INDEX = 32; // bits of the group of a column, as checkpoints store it
  const indexed = (rows, columns, bits, granularity, symmetric) =>
    linear(rows, columns, bits, granularity, symmetric) + INDEX * columns;

  const codebook = (rows, columns, bits, granularity) =>
    rows * columns * bits + groups(rows, columns, granularity) * 2 ** bits * SCALE;

  function nf4(rows, columns, double) {
    const weights = rows * columns;
    const blocks = Math.ceil(weights / 64);
    if (!double) return 4 * weights + 32 * blocks;
    return 4 * weights + 8 * blocks + 32 * (Math.ceil(blocks / 256) + 1);
  }

  /* Two of four values in a row; null where rows do not divide into fours. */
  const twoOfFour = (rows, columns, bits) =>
    columns % 4 ? null : rows * (columns / 4) * 2 * (bits + 2);

  return { groups, linear, indexed, codebook, nf4, twoOfFour };
})();
