// Draws the runs of one question on one hardware in their order, each with its interval; what changed between two is marked and numbered.
"use strict";
(() => {
  const { plain, textWidth, fitting } = specwebPlots;
  const { at, ratioSpan, ratioAxis, ratioGround } = specwebPanels;
  const LEFT_PX = 44, RIGHT_PX = 10, HEAD_PX = 30, TALL_PX = 230, FOOT_PX = 66;

  function draw(place, data) {
    const c = specwebPlots.colours(data.runs), width = Math.floor(place.clientWidth), n = data.runs.length, size = { width, left: LEFT_PX, right: RIGHT_PX, height: HEAD_PX + TALL_PX };
    const inner = width - LEFT_PX - RIGHT_PX, low = -0.6, high = n - 0.4, px = (i) => LEFT_PX + ((i - low) / (high - low)) * inner;
    const known = (p) => p.low !== null && p.high !== null, drawn = data.runs.map((r, i) => ({ ...r, i })).filter((r) => r.estimate);
    const marks = {
      type: "scatter", mode: "markers", cliponaxis: false, x: drawn.map((r) => r.i), y: drawn.map((r) => r.estimate), customdata: drawn.map((r) => r.href),
      error_y: { type: "data", symmetric: false, width: 0, thickness: 2, color: c.modes[data.mode], array: drawn.map((r) => (known(r) ? r.high - r.estimate : 0)), arrayminus: drawn.map((r) => (known(r) ? r.estimate - r.low : 0)) },
      marker: {
        size: 10, color: c.modes[data.mode], symbol: drawn.map((r) => (known(r) && r.judged ? data.symbol : data.symbol.replace(/(-open)?$/, "-open"))),
        line: { width: 1.5, color: drawn.map((r) => (known(r) && r.judged && !data.symbol.endsWith("-open") ? c.bg : c.modes[data.mode])) },
      },
      text: drawn.map((r) => `${plain(r.date)}, ${plain(fitting(r.host, 220, `13px ${c.family}`))}<br>${plain(r.text)} (${plain(r.range)})<br>${plain(r.verdict)}`), hovertemplate: "%{text}<extra></extra>",
    };
    const shapes = ratioGround(0, data.margin, c), annotations = [];
    let last = -Infinity;
    data.changes.forEach(({ before, number }) => {
      shapes.push({ type: "line", xref: "x", yref: "y domain", x0: before - 0.5, x1: before - 0.5, y0: 0, y1: 1, line: { color: c.soft, width: 1, dash: "dot" }, layer: "below" });
      const x = px(before - 0.5), w = textWidth(String(number), `650 12px ${c.family}`) + 8;
      if (x - last < w) return; // the line stands; its number is in the list
      last = x;
      annotations.push(at(size, x, 14, String(number), { xanchor: "center", bordercolor: c.soft, borderwidth: 1, borderpad: 2, bgcolor: c.bg, font: { color: c.ink, size: 12, weight: 650 } }));
    });
    for (const { from, to, build } of data.builds) {
      const x0 = px(from - 0.4), x1 = px(to + 0.4), room = x1 - x0 - 4;
      const y = size.height + 44;
      shapes.push({ type: "line", xref: "paper", yref: "paper", x0: (x0 - LEFT_PX) / inner, x1: (x1 - LEFT_PX) / inner, y0: -32 / TALL_PX, y1: -32 / TALL_PX, line: { color: c.faint, width: 2 } });
      if (room > 34) annotations.push(at(size, (x0 + x1) / 2, y, fitting(build, room, `12px ${c.family}`), { xanchor: "center", font: { color: c.soft, size: 12 } }));
    }
    const dates = specwebPanels.apart(data.runs.map((r, i) => ({ at: i, text: r.day })), px, c.family);
    const layout = {
      ...specwebPlots.base(c, width, size.height + FOOT_PX), margin: { l: LEFT_PX, r: RIGHT_PX, t: HEAD_PX, b: FOOT_PX, pad: 0 }, shapes,
      annotations: annotations.map((a) => ({ ...a, yshift: a.yshift + HEAD_PX })),
      xaxis: { range: [low, high], fixedrange: true, tickmode: "array", tickvals: dates.map((t) => t.at), ticktext: dates.map((t) => t.text), showgrid: false, zeroline: false, tickfont: { color: c.soft, size: 12 } },
      yaxis: { ...ratioAxis(ratioSpan(drawn, data.margin), TALL_PX), fixedrange: true, tickmode: "array", gridcolor: c.line, zeroline: false, tickfont: { color: c.soft, size: 12 } },
    };
    return Plotly.react(place, [marks], layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("history", (place, data) => () => draw(place, data));
})();
