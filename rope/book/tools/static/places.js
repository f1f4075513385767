// The search's results: first the places whose title has the words of the query, then pages.
// PLACES, [page, its title, the place's title, its id] each, stands in places-list.js.
(() => {
  // Words that tell no place from another, left out unless the query has no others.
  const COMMON = new Set("a an and are at be by can do does for from has have how i in is it its my of on or so the to was what when where which why with".split(" "));
  const MOST = 8;

  const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
  // A title's words, those with a hyphen also as one: "mrope" finds "M-RoPE".
  const titleWords = (text) => [...words(text), ...words((text.match(/\S*-\S*/g) || []).join(" ").replace(/-/g, ""))];

  // 1 for a word of the title, less for its beginning, so that "rotate" finds "rotated".
  const match = (word, title) =>
    title.includes(word) || title.includes(word.replace(/s$/, "")) ? 1 : title.some((one) => word.length > 2 && one.startsWith(word.slice(0, 7))) ? 0.7 : 0;

  const score = (query, title) => {
    const telling = query.filter((word) => !COMMON.has(word));
    const asked = telling.length ? telling : query;
    const matches = asked.map((word) => match(word, title));
    if (!asked.length || matches.some((found) => !found)) return 0;
    // All words of the query are there; the fewer others the title has, the better.
    return matches.reduce((sum, found) => sum + found) / (asked.length + title.length / 4);
  };

  const found = (query) =>
    PLACES.map(([page, chapter, title, id]) => ({ page, chapter, title, id, score: score(words(query), titleWords(title)) + (id ? 0 : 0.05) }))
      .filter((place) => place.score > 0.05)
      .sort((a, b) => b.score - a.score)
      .slice(0, MOST);

  if (typeof Search === "undefined") return;
  const pages = Search._performSearch;
  // Results are shown from the last to the first.
  Search._performSearch = (query, ...rest) => [
    ...pages(query, ...rest),
    ...found(query)
      .reverse()
      .map(({ page, chapter, title, id }) => [page, id ? `${title} (${chapter})` : title, id && `#${id}`, null, 0, `${page}.html`]),
  ];
})();
