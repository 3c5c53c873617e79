/* Sphinx's scores, but that a chapter stands before other pages that have the words as often in
   their text, and an early lab, which introduces a term, before those that use it. */
var Scorer = {
  score: ([docname, , , , score]) => {
    const lab = /^chapters\/lab(\d\d)/.exec(docname);
    return lab ? score + 5 - lab[1] / 100 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
