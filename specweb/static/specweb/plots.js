// What the plots of a page share: when the big script is loaded, how colours and texts are read, how a plot follows its width.
"use strict";
const specwebPlots = (() => {
  // Plotly adds two style elements of its own unless these ids are taken: site.css has the rules that the plots need, and
  // there is no map here. The second id is the bundled map library's.
  const STYLE_IDS = [["plotly.js-style-global", "no-inline-styles"], ["9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53", ""]];
  const SHAPES = { keep: "✓", shorten: "⇤", disable: "✕", inconclusive: "∼", invalid: "△", "not engaged": "∅" };
  const RATIO_TICKS = [1, 2, 0.5, 3, 0.7, 1.5, 5, 0.33, 0.25, 4, 10, 0.1, 1.2, 0.8, 1.1, 0.9, 20, 0.05];
  const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false, responsive: false };

  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads markup in texts. Its bold and italics are style attributes, which the page's policy forbids: fonts say it instead.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const textWidth = (() => {
    const context = document.createElement("canvas").getContext("2d");
    return (text, font) => { context.font = font; return context.measureText(text).width; };
  })();

  // The page's colours as they are now, and those of the modes and verdicts that the rows name.
  function colours(rows) {
    const c = { modes: {}, verdicts: {}, family: getComputedStyle(document.body).fontFamily };
    for (const name of ["bg", "ink", "soft", "faint", "line", "band", "panel"]) c[name] = token("--" + name);
    for (const row of rows) {
      c.modes[row.mode] = token("--m-" + row.mode) || c.soft;
      c.verdicts[row.verdict_class] = token("--" + row.verdict_class.slice(2)) || c.soft;
    }
    return c;
  }

  // Those of the wished-for ticks of a log axis that lie on it, at least `gap` pixels apart; the first wishes win.
  function ticks(wishes, [low, high], length, gap) {
    const at = (t) => ((Math.log10(t) - low) / (high - low)) * length;
    const kept = [];
    for (const t of wishes) {
      const x = at(t);
      if (x > 4 && x < length - 4 && kept.every((k) => Math.abs(at(k) - x) >= gap)) kept.push(t);
    }
    return kept;
  }

  function begin(place, draw) {
    place.replaceChildren();
    let drawnWidth = place.clientWidth;
    draw().then(() => {
      place.dataset.drawn = "yes";
      place.on("plotly_click", (event) => { const href = event.points[0].customdata; if (href) location.href = href; });
      new ResizeObserver(() => {
        if (place.clientWidth === drawnWidth || !place.clientWidth) return;
        drawnWidth = place.clientWidth;
        requestAnimationFrame(draw);
      }).observe(place);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => requestAnimationFrame(draw));
    });
  }

  const waiting = [];
  let begun = false;

  function load() {
    for (const [id, kind] of STYLE_IDS) {
      if (document.getElementById(id)) continue;
      const taken = document.createElement("template");
      taken.id = id;
      taken.className = kind;
      document.head.append(taken);
    }
    const script = document.createElement("script");
    script.src = waiting[0].place.dataset.plotly;
    script.onload = () => { for (const { place, draw } of waiting) begin(place, draw); };
    script.onerror = () => { for (const { place } of waiting) place.textContent = "The plot could not be loaded; the table below has all its numbers."; };
    document.head.append(script);
  }

  // The script is big: it comes when the page has been painted and the browser has nothing else to do.
  const idle = window.requestIdleCallback || ((run) => setTimeout(run, 50));
  const once = () => {
    if (!begun && waiting.length) {
      begun = true;
      idle(load);
    }
  };
  function whenPainted() {
    const painted = (list) => { if (list.getEntriesByName("first-contentful-paint").length) once(); };
    try {
      new PerformanceObserver(painted).observe({ type: "paint", buffered: true });
    } catch {
      once(); // a browser that doesn't tell
    }
    setTimeout(once, 4000); // a tab in the background is never painted
  }

  // `make(place, data)` gives the function that draws, and draws again when the width or the colours have changed.
  function plot(id, make) {
    const place = document.getElementById(id), source = document.getElementById(`${id}-data`);
    if (!place || !source) return;
    waiting.push({ place, draw: make(place, JSON.parse(source.textContent)) });
    if (waiting.length === 1) whenPainted();
  }

  return { plot, colours, plain, textWidth, ticks, SHAPES, RATIO_TICKS, CONFIG };
})();
