/* Which tokens to keep or to read, and where a server's knee lies: efflib/attention/selection.py and
   efflib/serving/load.py.

   everything   2 d T numbers kept and read     T tokens, of one key head in one layer
   keep few     2 d min(C, T)                   kept and read
   read few     2 d (T + P) kept; 2 d (R + P)   P = ceil(T / page) pages, each with two summaries;
                read                            R tokens of the pages that are read, the newest first
   knee         the rate up to which the share of requests within their limits stays at the goal */
"use strict";
globalThis.calc ??= {};

calc.tokens = (() => {
  /* {kept, read}: numbers (not bytes) of a key head in one layer, for one query. */
  const everything = (tokens, d) => ({ kept: 2 * d * tokens, read: 2 * d * tokens });
  const keepFew = (tokens, d, size) => everything(Math.min(tokens, size), d);

  function readFew(tokens, d, page, pages) {
    const number = Math.ceil(tokens / page);
    const last = tokens - (number - 1) * page; // of the newest page, which is always read
    const read = Math.min(number, pages) * page - page + last;
    return { kept: 2 * d * (tokens + number), read: 2 * d * (read + number) };
  }

  /* points: [[rate, share], …]; on straight lines between them. 0 where the lowest rate fails. */
  function knee(points, goal) {
    let [good, kept] = [0, null];
    for (const [rate, share] of [...points].sort(([a], [b]) => a - b)) {
      if (share < goal) {
        const part = kept === null ? 0 : (kept - goal) / (kept - share);
        return good + part * (rate - good);
      }
      [good, kept] = [rate, share];
    }
    return good;
  }

  return { everything, keepFew, readFew, knee };
})();
