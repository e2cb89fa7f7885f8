// Draws lines along one part of the question (draft limit, requests at once, occupied context), a panel for each kind of work.
"use strict";
(() => {
  const { plain, fitting, ticks } = specwebPlots;
  const { grid, axes, heads, ratioGround, ratioSpan, ratioAxis, apart, key, keyHeight, name } = specwebPanels;
  const SPEED_TICKS = [1, 10, 100, 1000, 2, 20, 200, 2000, 5, 50, 500, 5000, 10000, 3, 30, 300, 3000, 7, 70, 700, 15, 150, 40, 60, 80, 25, 0.5, 0.2, 0.1];

  function traces(panel, i, data, c, width, shown) {
    return panel.series.map((series) => {
      const line = data.lines[series.line], { points } = series, color = c.modes[line.mode], known = (p) => p.low !== null && p.high !== null;
      const first = !shown.has(series.line);
      shown.add(series.line);
      const axis = { xaxis: `x${name(i)}`, yaxis: `y${name(i)}` };
      return {
        type: "scatter", mode: "lines+markers", ...axis, cliponaxis: false, name: plain(fitting(line.label, width - 70, `12.5px ${c.family}`)), legendgroup: String(series.line), showlegend: first, legendrank: 1000 + series.line,
        x: points.map((p) => p.x), y: points.map((p) => p.estimate), customdata: points.map((p) => p.href),
        line: { color, width: 1.6, dash: line.dash },
        error_y: data.unit ? undefined : {
          type: "data", symmetric: false, width: 0, thickness: 2, color,
          array: points.map((p) => (known(p) ? p.high - p.estimate : 0)), arrayminus: points.map((p) => (known(p) ? p.estimate - p.low : 0)),
        },
        marker: {
          size: 9, color, symbol: points.map((p) => (data.unit || known(p) ? line.symbol : line.symbol.replace(/(-open)?$/, "-open"))),
          line: { width: 1.5, color: line.symbol.endsWith("-open") ? color : c.bg },
        },
        text: points.map((p) => `${plain(fitting(line.label, 300, `13px ${c.family}`))}<br>${plain(p.at)}: ${plain(p.text)} (${plain(p.range)})`), hovertemplate: "%{text}<extra></extra>",
      };
    });
  }

  function speedAxis(points, height) {
    const span = speedSpan(points.map((p) => p.estimate)), vals = ticks(SPEED_TICKS, span, height, 26);
    return { type: "log", range: span, tickvals: vals, ticktext: vals.map(String) };
  }
  function speedSpan(values) {
    const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values)), pad = Math.max((high - low) * 0.1, 0.06);
    return [low - pad, high + pad];
  }

  function draw(place, data) {
    const c = specwebPlots.colours(data.lines), width = Math.floor(place.clientWidth), { panels, size } = grid(data.panels.length, width, 44);
    const all = data.panels.flatMap((p) => p.series.flatMap((s) => s.points)), shown = new Set();
    const parts = data.panels.map((panel, i) => {
      const box = panels[i], points = panel.series.flatMap((s) => s.points), xs = panel.ticks.map((t) => t.at);
      const low = Math.min(...xs), high = Math.max(...xs), pad = (high - low || 1) * 0.09, px = (v) => ((v - low + pad) / (high - low + 2 * pad)) * box.width;
      const kept = apart(panel.ticks, px, c.family);
      const y = data.unit ? speedAxis(points, box.height) : ratioAxis(ratioSpan(all, data.margin), box.height);
      return {
        traces: traces(panel, i, data, c, width, shown), annotations: heads(panel, box, size, c, data.x), shapes: data.unit ? [] : ratioGround(i, data.margin, c),
        axes: axes(i, box, size, c, { range: [low - pad, high + pad], tickvals: kept.map((t) => t.at), ticktext: kept.map((t) => t.text) }, y),
      };
    });
    const foot = keyHeight(shown.size);
    const layout = {
      ...specwebPlots.base(c, width, size.height + foot), margin: { l: size.left, r: size.right, t: 0, b: foot, pad: 0 }, ...key(data.lines, size, c),
      ...Object.assign({}, ...parts.map((p) => p.axes)), shapes: parts.flatMap((p) => p.shapes), annotations: parts.flatMap((p) => p.annotations),
    };
    return Plotly.react(place, parts.flatMap((p) => p.traces), layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("curves", (place, data) => () => draw(place, data));
})();
