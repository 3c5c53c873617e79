/* How much faster speculation is, from three measured numbers: efflib/decoding/speed.py.

   E = 1 + a + ... + a^g          tokens a round, all of them the target's
   S = E / (1 + g (c + w))        times the tokens per second of plain decoding

   g proposals a round, each accepted independently with probability a; a draft pass costs c passes
   of the target, and each token that a pass checks w more. */
"use strict";
globalThis.calc ??= {};

calc.speculation = (() => {
  function expectedTokens(a, g) {
    let sum = 0;
    for (let i = 0; i <= g; i++) sum += a ** i; // also right at a = 1
    return sum;
  }

  const speedup = (a, g, c, w) => expectedTokens(a, g) / (1 + g * (c + w));

  /* The g from 0 to `most` with the largest S; of equal ones the smallest. */
  function best(a, c, w, most = 64) {
    let found = 0;
    for (let g = 1; g <= most; g++) {
      if (speedup(a, g, c, w) > speedup(a, found, c, w)) found = g;
    }
    return found;
  }

  return { expectedTokens, speedup, best };
})();
