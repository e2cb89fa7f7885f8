// Small charts side by side in one: where their panels lie, their heads, axes and bands.
"use strict";
const specwebPanels = (() => {
  const { plain, textWidth, fitting, NARROW_PX } = specwebPlots;
  const WIDE_PX = 960, HEAD_PX = 44, FOOT_PX = 48, GAP_PX = 22;

  // Where the panels lie, in pixels: as many in a row as are still wide enough to read.
  function grid(n, width, left) {
    const columns = Math.min(n, width < NARROW_PX ? 1 : width < WIDE_PX ? 2 : 3);
    const each = (width - 10 - left - (columns - 1) * (GAP_PX + left)) / columns, tall = width < NARROW_PX ? 210 : 240;
    const panels = Array.from({ length: n }, (_, i) => {
      const row = Math.floor(i / columns), column = i % columns;
      return { left: left + column * (each + left + GAP_PX), top: row * (HEAD_PX + tall + FOOT_PX) + HEAD_PX, width: each, height: tall };
    });
    return { panels, size: { width, left, right: 10, height: Math.ceil(n / columns) * (HEAD_PX + tall + FOOT_PX) } };
  }

  const name = (i) => (i ? i + 1 : "");

  // Both axes of a panel, placed; `x` and `y` bring range, ticks and type.
  function axes(i, box, size, c, x, y) {
    const inner = size.width - size.left - size.right, base = { fixedrange: true, tickmode: "array", gridcolor: c.line, zeroline: false, ticks: "", tickfont: { color: c.soft, size: 12 } };
    return {
      [`xaxis${name(i)}`]: { ...base, ...x, domain: [(box.left - size.left) / inner, (box.left - size.left + box.width) / inner], anchor: `y${name(i)}` },
      [`yaxis${name(i)}`]: { ...base, ...y, domain: [1 - (box.top + box.height) / size.height, 1 - box.top / size.height], anchor: `x${name(i)}` },
    };
  }

  const pin = { showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "middle", captureevents: false };

  // Text at a place given in pixels from the top left of the chart.
  const at = (size, x, y, text, rest) => ({ ...pin, xshift: x - size.left, yshift: -y, text: plain(text), ...rest });

  function heads(panel, box, size, c, xTitle) {
    const room = box.width + 30;
    return [
      at(size, box.left - 30, box.top - 31, fitting(panel.title, room, `650 13.5px ${c.family}`), { font: { color: c.ink, size: 13.5, weight: 650 } }),
      at(size, box.left - 30, box.top - 13, fitting(panel.detail, room, `12px ${c.family}`), { font: { color: c.soft, size: 12 } }),
      at(size, box.left + box.width, box.top + box.height + 32, fitting(`${xTitle} →`, box.width, `12px ${c.family}`), { xanchor: "right", font: { color: c.soft, size: 12 } }),
    ];
  }

  // The line of 1 and the band of the margin.
  function ratioGround(i, margin, c) {
    const across = (y0, y1, rest) => ({ xref: `x${name(i)} domain`, yref: `y${name(i)}`, x0: 0, x1: 1, y0, y1, layer: "below", ...rest });
    return [
      across(1 / (1 + margin), 1 + margin, { type: "rect", fillcolor: c.band, line: { width: 0 } }),
      across(1, 1, { type: "line", line: { color: c.faint, width: 1.2 } }),
    ];
  }

  const ratioSpan = (points, margin) => specwebPlots.logSpan([0.8, 1.25, 1 + margin, 1 / (1 + margin), ...points.flatMap((p) => [p.estimate, p.low, p.high])], 0.08);

  function ratioAxis(span, height) {
    const vals = specwebPlots.ticks(specwebPlots.RATIO_TICKS, span, height, 26);
    return { type: "log", range: span, tickvals: vals, ticktext: vals.map((t) => `${t}×`) };
  }

  // Of ticks with texts, those that don't run into each other: first and last win.
  function apart(ticks, place, family) {
    const half = (t) => textWidth(t.text, `12px ${family}`) / 2 + 4, kept = [];
    for (const t of [ticks[0], ticks.at(-1), ...ticks.slice(1, -1)]) {
      if (t && !kept.includes(t) && kept.every((k) => Math.abs(place(k.at) - place(t.at)) >= half(k) + half(t))) kept.push(t);
    }
    return kept;
  }

  // The key of the lines below the panels, one in a row. Its place is told from the panels, so that it stays when a saved file gets a foot.
  function key(labels, size, c) {
    return {
      showlegend: true,
      legend: {
        x: -size.left / (size.width - size.left - size.right), y: -6 / size.height, xanchor: "left", yanchor: "top", orientation: "v", tracegroupgap: 0, itemclick: false,
        itemdoubleclick: false, bgcolor: "rgba(0,0,0,0)", font: { color: c.ink, size: 12.5 }, itemsizing: "trace",
      },
    };
  }
  const keyHeight = (n) => n * 20 + 24;

  return { grid, axes, at, heads, ratioGround, ratioSpan, ratioAxis, apart, key, keyHeight, name };
})();
