// Score search results as Sphinx does, but rank matches in section titles first.
var Scorer = {
  score: ([page, title, anchor, description, score]) => score + (anchor && !description ? 100 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
