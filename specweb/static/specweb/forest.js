// Draws the forest plot of speed-ups: log axis around 1, margin shaded, one row for each arm, made for the width it gets.
"use strict";
(() => {
  const place = document.getElementById("forest");
  const source = document.getElementById("forest-data");
  if (!place || !source) return;
  const data = JSON.parse(source.textContent);
  const NARROW_PX = 620, TOP_PX = 4;
  const TICKS = [1, 2, 0.5, 3, 0.7, 1.5, 5, 0.33, 0.25, 4, 10, 0.1, 1.2, 0.8, 1.1, 0.9, 20, 0.05];
  // Plotly adds two style elements of its own unless these ids are taken: site.css has the rules that the plot needs, and
  // there is no map here. The second id is the bundled map library's.
  const STYLE_IDS = [["plotly.js-style-global", "no-inline-styles"], ["9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53", ""]];

  const SHAPES = { keep: "✓", shorten: "⇤", disable: "✕", inconclusive: "∼", invalid: "△", "not engaged": "∅" };

  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads markup in texts. Its bold and italics are style attributes, which the page's policy forbids: fonts say it instead.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const textWidth = (() => {
    const context = document.createElement("canvas").getContext("2d");
    return (text, font) => { context.font = font; return context.measureText(text).width; };
  })();

  function colours() {
    const c = { modes: {}, verdicts: {}, family: getComputedStyle(document.body).fontFamily };
    for (const name of ["bg", "ink", "soft", "faint", "line", "band", "panel"]) c[name] = token("--" + name);
    for (const row of data.groups.flatMap((g) => g.rows)) {
      c.modes[row.mode] = token("--m-" + row.mode) || c.soft;
      c.verdicts[row.verdict_class] = token("--" + row.verdict_class.slice(2)) || c.soft;
    }
    return c;
  }

  // Vertical places in pixels from the top of the plot; the y axis counts the same way.
  function placed() {
    let y = TOP_PX;
    const heads = [], rows = [];
    for (const group of data.groups) {
      heads.push({ title: group.title, detail: group.detail, line: y, y: y + data.group_px - 13 });
      y += data.group_px;
      for (const row of group.rows) {
        rows.push({ ...row, y: y + data.row_px / 2 });
        y += data.row_px;
      }
    }
    return { heads, rows, height: y + 6 };
  }

  function range(rows) {
    const values = [0.8, 1.25, 1 + data.margin, 1 / (1 + data.margin)];
    for (const row of rows) for (const v of [row.estimate, row.low, row.high]) if (v > 0) values.push(Math.min(Math.max(v, 0.01), 100));
    const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values)), pad = (high - low) * 0.05;
    return [low - pad, high + pad];
  }

  function ticks([low, high], width, gap) {
    const at = (t) => ((Math.log10(t) - low) / (high - low)) * width;
    const kept = [];
    for (const t of TICKS) {
      const x = at(t);
      if (x > 4 && x < width - 4 && kept.every((k) => Math.abs(at(k) - x) >= gap)) kept.push(t);
    }
    return kept;
  }

  function traces(rows, c, narrow) {
    const modes = [...new Set(rows.filter((r) => r.estimate).map((r) => r.mode))];
    return modes.map((mode) => {
      const mine = rows.filter((r) => r.mode === mode && r.estimate);
      const known = (r) => r.low !== null && r.high !== null;
      return {
        type: "scatter", mode: "markers", name: mode, cliponaxis: false,
        x: mine.map((r) => r.estimate), y: mine.map((r) => r.y), customdata: mine.map((r) => r.href),
        error_x: {
          type: "data", symmetric: false, width: 0, thickness: 2.5, color: c.modes[mode],
          array: mine.map((r) => (known(r) ? r.high - r.estimate : 0)), arrayminus: mine.map((r) => (known(r) ? r.estimate - r.low : 0)),
        },
        marker: {
          size: narrow ? 9 : 10, color: c.modes[mode], symbol: mine.map((r) => (known(r) ? r.symbol : r.symbol.replace(/(-open)?$/, "-open"))),
          line: { width: 1.5, color: known(mine[0]) && !mine[0].symbol.endsWith("-open") ? c.bg : c.modes[mode] },
        },
        text: mine.map((r) => `${plain(r.arm)} ${r.text} (${plain(r.range)})<br>${plain(r.verdict)}, ${r.n_blocks} blocks`),
        hovertemplate: "%{text}<extra></extra>",
      };
    });
  }

  // Where an interval is withheld, its reason stands in its place and is longer.
  function widestRange(rows, c) {
    return Math.min(150, Math.max(74, ...rows.filter((r) => r.estimate).map((r) => Math.ceil(textWidth(r.range, `12.5px ${c.family}`)))));
  }

  function labels(heads, rows, c, left, narrow, verdictAt) {
    const base = { showarrow: false, yref: "y", yanchor: "middle", align: "left", captureevents: false };
    const atLeft = (text, y, shift, font) => ({ ...base, xref: "paper", x: 0, xanchor: "left", xshift: shift - left, text, y, font });
    const atRight = (text, y, shift, anchor, font) => ({ ...base, xref: "paper", x: 1, xanchor: anchor, xshift: shift, text, y, font });
    const list = [];
    for (const h of heads) {
      // On the page's ground, so that a grid line doesn't run through the words.
      list.push(atLeft(plain(h.title), h.y, 0, { color: c.ink, size: 13.5, weight: 650 }));
      list.push(atLeft(plain(h.detail), h.y, textWidth(h.title, `650 13.5px ${c.family}`) + 10, { color: c.soft, size: 12.5 }));
      for (const label of list.slice(-2)) Object.assign(label, { bgcolor: c.bg, borderpad: 1 });
    }
    for (const r of rows) {
      list.push(atLeft(plain(r.arm), r.y, narrow ? 4 : 14, { color: c.soft, size: 13 }));
      if (!r.estimate) {
        list.push({ ...base, xref: "paper", x: 0.5, xanchor: "center", text: plain(r.withheld), y: r.y, font: { color: c.soft, size: 12, style: "italic" } });
      } else {
        list.push(atRight(r.text, r.y, 56, "right", { color: c.ink, size: 13, weight: 650 }));
      }
      if (!narrow) {
        if (r.estimate) list.push(atRight(plain(r.range), r.y, 66, "left", { color: c.soft, size: 12.5 }));
        list.push(atRight(`${SHAPES[r.verdict] || ""} ${plain(r.verdict)}`, r.y, verdictAt, "left", { color: c.verdicts[r.verdict_class], size: 13 }));
      }
    }
    return list;
  }

  function shapes(heads, c, left, right, width, height) {
    const inner = width - left - right;
    const full = (y) => ({ type: "line", xref: "paper", x0: -left / inner, x1: 1 + right / inner, yref: "y", y0: y, y1: y, line: { color: c.line, width: 1 }, layer: "below" });
    const upright = { yref: "y", y0: TOP_PX, y1: height, layer: "below" };
    return [
      { type: "rect", x0: 1 / (1 + data.margin), x1: 1 + data.margin, ...upright, fillcolor: c.band, line: { width: 0 } },
      { type: "line", x0: 1, x1: 1, ...upright, line: { color: c.faint, width: 1.2 } },
      ...heads.slice(1).map((h) => full(h.line)),
    ];
  }

  function draw() {
    const { heads, rows, height } = placed();
    const width = Math.floor(place.clientWidth), narrow = width < NARROW_PX, c = colours();
    const { family } = c;
    const longest = Math.max(...rows.map((r) => textWidth(r.arm, `13px ${family}`)));
    const left = Math.min(Math.ceil(longest) + (narrow ? 14 : 30), Math.floor(width * 0.36)), verdictAt = 76 + widestRange(rows, c), right = narrow ? 60 : verdictAt + 112;
    const span = range(rows), tickvals = ticks(span, width - left - right, narrow ? 36 : 46);
    const layout = {
      width, height: data.height, margin: { l: left, r: right, t: 0, b: data.height - height, pad: 0 }, showlegend: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, color: c.ink, size: 13 }, dragmode: false, hovermode: "closest",
      hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { family, color: c.ink, size: 13 }, align: "left" },
      xaxis: {
        type: "log", range: span, fixedrange: true, tickmode: "array", tickvals, ticktext: tickvals.map((t) => `${t}×`), gridcolor: c.line,
        zeroline: false, tickfont: { color: c.soft, size: 12 }, ticks: "",
      },
      yaxis: { range: [height, 0], fixedrange: true, showticklabels: false, showgrid: false, zeroline: false },
      shapes: shapes(heads, c, left, right, width, height),
      annotations: labels(heads, rows, c, left, narrow, verdictAt),
    };
    return Plotly.react(place, traces(rows, c, narrow), layout, { displayModeBar: false, doubleClick: false, showTips: false, responsive: false });
  }

  function begin() {
    place.replaceChildren();
    let drawnWidth = place.clientWidth;
    draw().then(() => {
      place.dataset.drawn = "yes";
      place.on("plotly_click", (event) => { location.href = event.points[0].customdata; });
      new ResizeObserver(() => {
        if (place.clientWidth === drawnWidth || !place.clientWidth) return;
        drawnWidth = place.clientWidth;
        requestAnimationFrame(draw);
      }).observe(place);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => requestAnimationFrame(draw));
    });
  }

  function load() {
    for (const [id, kind] of STYLE_IDS) {
      if (document.getElementById(id)) continue;
      const taken = document.createElement("template");
      taken.id = id;
      taken.className = kind;
      document.head.append(taken);
    }
    const script = document.createElement("script");
    script.src = place.dataset.plotly;
    script.onload = begin;
    script.onerror = () => { place.textContent = "The plot could not be loaded; the table below has all its numbers."; };
    document.head.append(script);
  }

  // The script is big: it comes when the page has been painted and the browser has nothing else to do.
  const idle = window.requestIdleCallback || ((run) => setTimeout(run, 50));
  let begun = false;
  const once = () => {
    if (!begun) idle(load);
    begun = true;
  };
  const painted = (list) => { if (list.getEntriesByName("first-contentful-paint").length) once(); };
  try {
    new PerformanceObserver(painted).observe({ type: "paint", buffered: true });
  } catch {
    once(); // a browser that doesn't tell
  }
  setTimeout(once, 4000); // a tab in the background is never painted
})();
