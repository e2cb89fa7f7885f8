// What the charts of the site share: when the big script is loaded and a chart is drawn, colours and texts, saving as PNG and SVG.
"use strict";
const specwebPlots = (() => {
  // Plotly adds two style elements of its own unless these ids are taken: site.css has the rules that the plots need, and
  // there is no map here. The second id is the bundled map library's.
  const STYLE_IDS = [["plotly.js-style-global", "no-inline-styles"], ["9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53", ""]];
  const SHAPES = { keep: "✓", shorten: "⇤", disable: "✕", inconclusive: "∼", invalid: "△", "not engaged": "∅" };
  const RATIO_TICKS = [1, 2, 0.5, 3, 0.7, 1.5, 5, 0.33, 0.25, 4, 10, 0.1, 1.2, 0.8, 1.1, 0.9, 20, 0.05];
  const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false, responsive: false };
  const NARROW_PX = 620, NEAR = "800px 0px", SAVED_HEAD_PX = 58, SAVED_FOOT_PX = 26, SAVED_SIDE_PX = 16;
  const DARK = matchMedia("(prefers-color-scheme: dark)");

  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads markup in texts. Its bold and italics are style attributes, which the page's policy forbids: fonts say it instead.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const textWidth = (() => {
    const context = document.createElement("canvas").getContext("2d");
    return (text, font) => { context.font = font; return context.measureText(text).width; };
  })();

  // Cut where there is no room for it; the whole stands in the table.
  function fitting(text, room, font) {
    if (textWidth(text, font) <= room) return text;
    const letters = [...text];
    let low = 0, high = letters.length;
    const cut = (n) => `${letters.slice(0, n).join("").trimEnd()}…`;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (textWidth(cut(middle), font) <= room) low = middle;
      else high = middle - 1;
    }
    return cut(Math.max(1, low));
  }

  // The page's colours as they are now, and those of the modes and verdicts that the rows name.
  function colours(rows) {
    const c = { modes: {}, verdicts: {}, family: getComputedStyle(document.body).fontFamily };
    for (const name of ["bg", "ink", "soft", "faint", "line", "band", "panel"]) c[name] = token("--" + name);
    for (const row of rows) {
      c.modes[row.mode] = token("--m-" + row.mode) || c.soft;
      if (row.verdict_class) c.verdicts[row.verdict_class] = token("--" + row.verdict_class.slice(2)) || c.soft;
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

  // The range of a log axis (in powers of ten) that holds all values; those beyond 0.01 and 100 are held at the edge.
  function logSpan(values, share = 0.06) {
    const held = values.filter((v) => v > 0).map((v) => Math.log10(Math.min(Math.max(v, 0.01), 100)));
    const low = Math.min(...held), high = Math.max(...held), pad = (high - low) * share || 0.05;
    return [low - pad, high + pad];
  }

  // What every layout begins with.
  function base(c, width, height) {
    return {
      width, height, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: c.family, color: c.ink, size: 13 },
      dragmode: false, hovermode: "closest",
      hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { family: c.family, color: c.ink, size: 13 }, align: "left" },
    };
  }

  // --- saving ---

  // The chart as it is drawn, with a ground, its title and the address where it stands.
  function figureToSave(place) {
    const c = colours([]), { layout } = place, width = layout.width + 2 * SAVED_SIDE_PX, margin = layout.margin;
    const room = layout.width, words = { showarrow: false, xref: "paper", yref: "paper", x: 0, xanchor: "left", xshift: -margin.l };
    const head = (text, y, font) => ({ ...words, y: 1, yanchor: "top", yshift: margin.t + SAVED_HEAD_PX - y, text: plain(fitting(text, room, `${font.weight || 400} ${font.size}px ${c.family}`)), font });
    const address = location.href.split("#")[0].replace(/^https?:\/\//, "");
    const annotations = [
      ...(layout.annotations || []),
      head(place.dataset.title, 8, { color: c.ink, size: 15, weight: 650 }),
      head(place.dataset.caption, 30, { color: c.soft, size: 12 }),
      { ...words, y: 0, yanchor: "bottom", yshift: -margin.b - SAVED_FOOT_PX + 4, text: plain(fitting(address, room, `11px ${c.family}`)), font: { color: c.soft, size: 11 } },
    ];
    return {
      data: place.data,
      layout: {
        ...layout, annotations, width, height: layout.height + SAVED_HEAD_PX + SAVED_FOOT_PX, paper_bgcolor: c.bg,
        margin: { ...margin, l: margin.l + SAVED_SIDE_PX, r: margin.r + SAVED_SIDE_PX, t: margin.t + SAVED_HEAD_PX, b: margin.b + SAVED_FOOT_PX },
      },
      config: CONFIG,
    };
  }

  function handOver(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  async function asPng(svg, width, height) {
    const address = URL.createObjectURL(svg), image = new Image();
    try {
      image.src = address;
      await image.decode();
      const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
      canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
      return await new Promise((done) => canvas.toBlob(done, "image/png"));
    } finally {
      URL.revokeObjectURL(address);
    }
  }

  async function save(place, format) {
    const figure = figureToSave(place), { width, height } = figure.layout;
    const address = await Plotly.toImage(figure, { format: "svg", width, height });
    const svg = new Blob([decodeURIComponent(address.slice(address.indexOf(",") + 1))], { type: "image/svg+xml" });
    handOver(format === "svg" ? svg : await asPng(svg, width, height), `${place.dataset.file}.${format}`);
  }

  function offerFiles(place) {
    const buttons = place.closest(".chart")?.querySelector(".chart-save");
    if (!buttons || !buttons.hidden) return;
    buttons.hidden = false;
    for (const button of buttons.querySelectorAll("button")) button.addEventListener("click", () => save(place, button.dataset.save));
  }

  // --- drawing ---

  function begin(place, draw) {
    place.replaceChildren();
    let drawnWidth = place.clientWidth;
    const again = () => { if (place.isConnected && place.clientWidth) requestAnimationFrame(draw); };
    return draw().then(() => {
      place.dataset.drawn = "yes";
      place.on("plotly_click", (event) => { const href = event.points[0].customdata; if (href) location.href = href; });
      offerFiles(place);
      new ResizeObserver(() => {
        if (place.clientWidth === drawnWidth || !place.clientWidth) return;
        drawnWidth = place.clientWidth;
        requestAnimationFrame(draw);
      }).observe(place);
      DARK.addEventListener("change", again);
    });
  }

  const say = (place, words) => {
    place.removeAttribute("role");
    place.dataset.said = "yes";
    place.replaceChildren(Object.assign(document.createElement("p"), { className: "plot-note", textContent: words }));
  };
  const NO_SCRIPT = "The plot could not be loaded; the table has all its numbers.";

  let script = null;

  function plotly(address) {
    for (const [id, kind] of STYLE_IDS) {
      if (document.getElementById(id)) continue;
      const taken = document.createElement("template");
      taken.id = id;
      taken.className = kind;
      document.head.append(taken);
    }
    script ||= new Promise((done, failed) => {
      const element = document.createElement("script");
      element.src = address;
      element.onload = done;
      element.onerror = failed;
      document.head.append(element);
    });
    return script;
  }

  // The script is big: it comes when the page has been painted and the browser has nothing else to do.
  const idle = new Promise((done) => (window.requestIdleCallback || ((run) => setTimeout(run, 50)))(done));
  const painted = new Promise((done) => {
    try {
      new PerformanceObserver((list) => { if (list.getEntriesByName("first-contentful-paint").length) done(); }).observe({ type: "paint", buffered: true });
    } catch {
      done(); // a browser that doesn't tell
    }
    setTimeout(done, 4000); // a tab in the background is never painted
  });

  async function dataOf(place) {
    const carried = document.getElementById(`${place.id}-data`);
    if (carried) return JSON.parse(carried.textContent);
    const answer = await fetch(place.dataset.source, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  const makers = new Map();

  async function appear(place) {
    const make = makers.get(place.dataset.chart);
    let data;
    try {
      data = await dataOf(place);
    } catch {
      say(place, "The chart's numbers could not be read. Load the page again.");
      return;
    }
    if (data.empty) {
      say(place, data.empty);
      return;
    }
    await Promise.all([painted, idle]);
    try {
      await plotly(place.dataset.plotly);
    } catch {
      say(place, NO_SCRIPT);
      return;
    }
    await begin(place, make(place, data));
  }

  // A chart is drawn when it comes near the window.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      appear(target);
    }
  }, { rootMargin: NEAR });

  // Takes up the charts of a part of the page that came later.
  function look(root) {
    for (const place of root.querySelectorAll("[data-chart]:not([data-seen])")) {
      if (!makers.has(place.dataset.chart)) continue;
      place.dataset.seen = "yes";
      near.observe(place);
    }
  }

  // `make(place, data)` gives the function that draws a chart of this kind, and draws it again when width or colours changed.
  function plot(kind, make) {
    makers.set(kind, make);
    look(document);
  }

  return { plot, look, colours, plain, textWidth, fitting, ticks, logSpan, base, SHAPES, RATIO_TICKS, CONFIG, NARROW_PX };
})();
