/* One model on several devices, tensor or pipeline parallel: efflib/parallel/plans.py.

   message of n bytes      alpha + beta n                     seconds
   ring all-reduce         2 (p - 1) (alpha + beta n / p)
   tensor      max((W + B C) / (p bandwidth), B flops / (p peak)) + 2 L all-reduces of B rows
   pipeline    max(p, m) t,  t = max((W + B/m C) / (p bandwidth), B/m flops / (p peak))
                                 + alpha + beta B/m row         m micro-batches */
"use strict";
globalThis.calc ??= {};

calc.plans = (() => {
  const allReduce = (n, p, alpha, beta) => 2 * (p - 1) * (alpha + (beta * n) / p);

  /* Reading and computing of 1 / p of the model for a batch. */
  function part(job, batch, p) {
    const reading = (job.weights + batch * job.cache) / job.bandwidth;
    return Math.max(reading, (batch * job.flops) / job.peak) / p;
  }

  /* Seconds for one more token of each of `batch` sequences. */
  function tensorStep(job, batch, p) {
    const meeting = allReduce(batch * job.row, p, job.alpha, job.beta);
    return part(job, batch, p) + 2 * job.layers * meeting;
  }

  /* micro: micro-batches, a divisor of the batch. */
  function pipelineStep(job, batch, p, micro) {
    const rows = batch / micro;
    const message = p > 1 ? job.alpha + job.beta * rows * job.row : 0;
    return Math.max(p, micro) * (part(job, rows, p) + message);
  }

  /* The fastest pipeline: {micro, seconds}, of equally fast ones the fewest micro-batches. */
  function bestPipeline(job, batch, p) {
    let best = { micro: 1, seconds: pipelineStep(job, batch, p, 1) };
    for (let micro = 2; micro <= batch; micro++) {
      if (batch % micro) continue;
      const seconds = pipelineStep(job, batch, p, micro);
      if (seconds < best.seconds) best = { micro, seconds };
    }
    return best;
  }

  /* {plan, micro, seconds}: of equally fast ones tensor. */
  function betterPlan(job, batch, p) {
    const [tensor, pipeline] = [tensorStep(job, batch, p), bestPipeline(job, batch, p)];
    return pipeline.seconds < tensor
      ? { plan: "pipeline", ...pipeline }
      : { plan: "tensor", micro: 1, seconds: tensor };
  }

  return { allReduce, tensorStep, pipelineStep, bestPipeline, betterPlan };
})();
