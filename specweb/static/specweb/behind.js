// What stands below a chart whose numbers came by a second request: what is to be known of it, and its numbers as a table.
"use strict";
const specwebBehind = (() => {
  const made = (name, properties, children = []) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  // `table`: {heads, rows, more, words: columns of words}; the first column names the row.
  function table({ heads, rows, more, words = [], hrefs = [] }, title) {
    const kind = (i) => (i === 0 || words.includes(i) ? "" : "num");
    const first = (text, href) => [made("bdi", {}, [href ? made("a", { href, className: "n", textContent: text }) : text])];
    const head = made("tr", {}, heads.map((text, i) => made("th", { scope: "col", className: kind(i), textContent: text })));
    const body = rows.map((row, n) => made("tr", {}, row.map((text, i) => (i === 0 ? made("th", { scope: "row" }, first(text, hrefs[n])) : made("td", { className: kind(i), textContent: text })))));
    const scroll = made("div", { className: "scroll", tabIndex: 0 }, [made("table", {}, [made("thead", {}, [head]), made("tbody", {}, body)])]);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", `Numbers of ${title}`);
    const summary = made("summary", { textContent: "Table" }, [made("span", { className: "hidden-text", textContent: ` of ${title}` })]);
    return made("details", { className: "more chart-table" }, [summary, scroll, ...(more ? [made("p", { className: "plot-note", textContent: more })] : [])]);
  }

  function stand(place, data) {
    if (place.dataset.behind) return;
    place.dataset.behind = "yes";
    const parts = [];
    if (data.notes?.length) parts.push(made("p", { className: "plot-note", textContent: data.notes.join(" ") }));
    if (data.table?.rows.length) parts.push(table(data.table, place.dataset.title));
    place.after(...parts);
  }

  return { stand };
})();
