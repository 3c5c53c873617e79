/* Parameters and tokens of a training budget: efflib/models/scaling.py.

   C = 6 N D FLOPs;  D = 20 N by the rule;  by the law L = E + A / N^alpha + B / D^beta
   N = G (C / 6)^(beta / s),  G = (alpha A / (beta B))^(1 / s),  s = alpha + beta
   used afterwards: 2 N FLOPs for each token */
"use strict";
globalThis.calc ??= {};

calc.budget = (() => {
  /* Hoffmann et al. 2022 as printed; Besiroglu et al. 2024, the same points fitted again. */
  const LAWS = {
    "Besiroglu et al., 2024": { floor: 1.8172, a: 482.01, alpha: 0.3478, b: 2085.43, beta: 0.3658 },
    "Hoffmann et al., 2022": { floor: 1.69, a: 406.4, alpha: 0.34, b: 410.7, beta: 0.28 },
  };

  const training = (n, d) => 6 * n * d;
  const lifetime = (n, d, used) => training(n, d) + 2 * n * used;
  const loss = (n, d, law) => law.floor + law.a / n ** law.alpha + law.b / d ** law.beta;

  function byRule(compute, ratio) {
    const n = Math.sqrt(compute / (6 * ratio));
    return [n, ratio * n];
  }

  function byLaw(compute, law) {
    const both = law.alpha + law.beta;
    const scale = ((law.alpha * law.a) / (law.beta * law.b)) ** (1 / both);
    const n = scale * (compute / 6) ** (law.beta / both);
    return [n, compute / 6 / n];
  }

  /* Tokens that bring n parameters to a loss; Infinity where no number of tokens does. */
  function tokensFor(wanted, n, law) {
    const left = wanted - law.floor - law.a / n ** law.alpha;
    return left > 0 ? (law.b / left) ** (1 / law.beta) : Infinity;
  }

  return { LAWS, training, lifetime, loss, byRule, byLaw, tokensFor };
})();
