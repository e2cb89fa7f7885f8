// Draws the forest plot of speed-ups: log axis around 1, margin shaded, one row for each arm, made for the width it gets.
"use strict";
(() => {
  const { plain, textWidth, fitting, SHAPES, NARROW_PX } = specwebPlots;
  const TOP_PX = 4;

  // Vertical places in pixels from the top of the plot; the y axis counts the same way.
  function placed(data) {
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

  function range(rows, margin) {
    const values = [0.8, 1.25, 1 + margin, 1 / (1 + margin)];
    for (const row of rows) for (const v of [row.estimate, row.low, row.high]) if (v > 0) values.push(Math.min(Math.max(v, 0.01), 100));
    const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values)), pad = (high - low) * 0.05;
    return [low - pad, high + pad];
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

  function labels(heads, rows, c, left, width, narrow, verdictAt) {
    const base = { showarrow: false, yref: "y", yanchor: "middle", align: "left", captureevents: false };
    const atLeft = (text, y, shift, font) => ({ ...base, xref: "paper", x: 0, xanchor: "left", xshift: shift - left, text, y, font });
    const atRight = (text, y, shift, anchor, font) => ({ ...base, xref: "paper", x: 1, xanchor: anchor, xshift: shift, text, y, font });
    const list = [];
    for (const h of heads) {
      // On the page's ground, so that a grid line doesn't run through the words.
      const font = `650 13.5px ${c.family}`, title = fitting(h.title, width - 4, font), after = textWidth(title, font) + 10;
      const ground = { bgcolor: c.bg, borderpad: 1 };
      list.push({ ...atLeft(plain(title), h.y, 0, { color: c.ink, size: 13.5, weight: 650 }), ...ground });
      if (width - after > 40) list.push({ ...atLeft(plain(fitting(h.detail, width - after - 6, `12.5px ${c.family}`)), h.y, after, { color: c.soft, size: 12.5 }), ...ground });
    }
    for (const r of rows) {
      const shift = narrow ? 4 : 14;
      list.push(atLeft(plain(fitting(r.arm, left - shift - 8, `13px ${c.family}`)), r.y, shift, { color: c.soft, size: 13 }));
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

  function shapes(heads, c, left, right, width, height, margin) {
    const inner = width - left - right;
    const full = (y) => ({ type: "line", xref: "paper", x0: -left / inner, x1: 1 + right / inner, yref: "y", y0: y, y1: y, line: { color: c.line, width: 1 }, layer: "below" });
    const upright = { yref: "y", y0: TOP_PX, y1: height, layer: "below" };
    return [
      { type: "rect", x0: 1 / (1 + margin), x1: 1 + margin, ...upright, fillcolor: c.band, line: { width: 0 } },
      { type: "line", x0: 1, x1: 1, ...upright, line: { color: c.faint, width: 1.2 } },
      ...heads.slice(1).map((h) => full(h.line)),
    ];
  }

  function draw(place, data) {
    const { heads, rows, height } = placed(data);
    const width = Math.floor(place.clientWidth), narrow = width < NARROW_PX, c = specwebPlots.colours(rows);
    const { family } = c;
    const longest = Math.max(...rows.map((r) => textWidth(r.arm, `13px ${family}`)));
    const left = Math.min(Math.ceil(longest) + (narrow ? 14 : 30), Math.floor(width * (narrow ? 0.42 : 0.36))), verdictAt = 76 + widestRange(rows, c), right = narrow ? 60 : verdictAt + 112;
    const span = range(rows, data.margin), tickvals = specwebPlots.ticks(specwebPlots.RATIO_TICKS, span, width - left - right, narrow ? 36 : 46);
    const layout = {
      width, height: data.height, margin: { l: left, r: right, t: 0, b: data.height - height, pad: 0 }, showlegend: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, color: c.ink, size: 13 }, dragmode: false, hovermode: "closest",
      hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { family, color: c.ink, size: 13 }, align: "left" },
      xaxis: {
        type: "log", range: span, fixedrange: true, tickmode: "array", tickvals, ticktext: tickvals.map((t) => `${t}×`), gridcolor: c.line,
        zeroline: false, tickfont: { color: c.soft, size: 12 }, ticks: "",
      },
      yaxis: { range: [height, 0], fixedrange: true, showticklabels: false, showgrid: false, zeroline: false },
      shapes: shapes(heads, c, left, right, width, height, data.margin),
      annotations: labels(heads, rows, c, left, width, narrow, verdictAt),
    };
    return Plotly.react(place, traces(rows, c, narrow), layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("forest", (place, data) => () => draw(place, data));
})();
