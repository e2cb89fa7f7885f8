// Draws mean acceptance length against speed-up: colour and marker tell the mode, a letter the hardware; the tick on 1 is what a row
// needs on its host, and the dotted line leads from it to what the row has.
"use strict";
(() => {
  const { plain, textWidth, fitting, ticks, logSpan } = specwebPlots;
  const { grid, axes, at, heads, ratioGround, ratioSpan, ratioAxis, name } = specwebPanels;
  const LENGTH_TICKS = [1, 2, 4, 3, 8, 6, 1.5, 16, 12, 1.2, 5, 32, 2.5, 1.1, 3.5];
  const LETTER_PX = 12.5, KEY_ROW_PX = 20;

  // A place for each letter beside its mark: the first side where it covers no mark and no other letter.
  function placedLetters(points, where, box) {
    const taken = points.flatMap((p) => { const { x, y } = where(p); return [{ l: x - 7, r: x + 7, t: y - 7, b: y + 7 }]; });
    return points.map((p) => {
      const { x, y } = where(p), w = 6 * p.place.length;
      const sides = [[x + 9 + w, y], [x - 9 - w, y], [x + 8 + w, y - 12], [x - 8 - w, y - 12], [x + 8 + w, y + 12], [x - 8 - w, y + 12], [x, y - 17], [x, y + 17], [x + 24 + w, y], [x - 24 - w, y]];
      let best = null;
      for (const [cx, cy] of sides) {
        const r = { l: cx - w, r: cx + w, t: cy - 7, b: cy + 7 };
        const outside = Math.max(0, -r.l, r.r - box.width, -r.t, r.b - box.height) * 50;
        const cost = outside + taken.reduce((sum, t) => sum + Math.max(0, Math.min(r.r, t.r) - Math.max(r.l, t.l)) * Math.max(0, Math.min(r.b, t.b) - Math.max(r.t, t.t)), 0);
        if (best === null || cost < best.cost) best = { cost, r, cx, cy };
        if (!cost) break;
      }
      taken.push(best.r);
      return { text: p.place, x: best.cx, y: best.cy };
    });
  }

  function panelParts(panel, i, box, size, data, ySpan, c) {
    const xSpan = logSpan([1, 2, ...panel.points.flatMap((p) => [p.x, p.needs])], 0.08), refs = { xref: `x${name(i)}`, yref: `y${name(i)}` };
    const px = (v) => ((Math.log10(v) - xSpan[0]) / (xSpan[1] - xSpan[0])) * box.width, py = (v) => box.height - ((Math.log10(v) - ySpan[0]) / (ySpan[1] - ySpan[0])) * box.height;
    const marks = panel.points.map((p) => {
      const known = p.low !== null && p.high !== null, color = c.modes[p.mode];
      return {
        type: "scatter", mode: "markers", xaxis: `x${name(i)}`, yaxis: `y${name(i)}`, cliponaxis: false, x: [p.x], y: [p.estimate], customdata: [p.href],
        error_y: { type: "data", symmetric: false, width: 0, thickness: 2, color, array: [known ? p.high - p.estimate : 0], arrayminus: [known ? p.estimate - p.low : 0] },
        marker: { size: 10, symbol: known ? p.symbol : p.symbol.replace(/(-open)?$/, "-open"), color, line: { width: 1.5, color: known && !p.symbol.endsWith("-open") ? c.bg : color } },
        text: [`${plain(fitting(p.who, 300, `13px ${c.family}`))}<br>${plain(p.text)} (${plain(p.range)})<br>${plain(p.words)}`], hovertemplate: "%{text}<extra></extra>",
      };
    });
    const needed = panel.points.filter((p) => p.needs);
    const line = (p) => ({ type: "line", ...refs, x0: p.needs, y0: 1, x1: p.x, y1: p.estimate, line: { color: c.modes[p.mode], width: 1, dash: "dot" }, layer: "below" });
    const tick = (p) => ({ type: "line", ...refs, xsizemode: "scaled", ysizemode: "pixel", yanchor: 1, x0: p.needs, x1: p.needs, y0: -6, y1: 6, line: { color: c.modes[p.mode], width: 2 } });
    const vals = ticks(LENGTH_TICKS, xSpan, box.width, 30);
    return {
      marks, shapes: [...ratioGround(i, data.margin, c), ...needed.map(line), ...needed.map(tick)],
      annotations: [
        ...heads(panel, box, size, c, "mean acceptance length"),
        ...placedLetters(panel.points, (p) => ({ x: px(p.x), y: py(p.estimate) }), box).map((l) => at(size, box.left + l.x, box.top + l.y, l.text, { xanchor: "center", font: { color: c.soft, size: LETTER_PX } })),
      ],
      axes: axes(i, box, size, c, { type: "log", range: xSpan, tickvals: vals, ticktext: vals.map(String) }, ratioAxis(ySpan, box.height)),
    };
  }

  // Which letter is which hardware, and which mark which mode, below the panels.
  function keyOf(data, points, size, c) {
    const modes = [...new Map(points.map((p) => [p.mode, p.symbol]))], left = 8;
    const list = data.places.map(({ letter, where }, i) => at(size, left, size.height + 12 + i * KEY_ROW_PX, fitting(`${letter}  ${where}`, size.width - left, `12.5px ${c.family}`), { font: { color: c.ink, size: 12.5 } }));
    return { list, modes, height: data.places.length * KEY_ROW_PX + 14 };
  }

  function draw(place, data) {
    const points = data.panels.flatMap((p) => p.points), c = specwebPlots.colours(points), width = Math.floor(place.clientWidth);
    const { panels, size } = grid(data.panels.length, width, 44), ySpan = ratioSpan(points, data.margin);
    const parts = data.panels.map((panel, i) => panelParts(panel, i, panels[i], size, data, ySpan, c)), keys = keyOf(data, points, size, c);
    // The modes' marks stand in Plotly's own key, by traces that draw nothing.
    const marks = keys.modes.map(([mode, symbol]) => ({ type: "scatter", mode: "markers", x: [null], y: [null], name: plain(mode), showlegend: true, hoverinfo: "skip", marker: { size: 10, symbol, color: c.modes[mode], line: { width: 1.5, color: symbol.endsWith("-open") ? c.modes[mode] : c.bg } } }));
    const longest = Math.max(...keys.modes.map(([mode]) => textWidth(mode, `12.5px ${c.family}`))) + 46, rows = Math.ceil(keys.modes.length / Math.max(1, Math.floor(width / longest)));
    const foot = keys.height + rows * 22 + 12;
    const layout = {
      ...specwebPlots.base(c, width, size.height + foot), margin: { l: size.left, r: size.right, t: 0, b: foot, pad: 0 }, showlegend: true,
      legend: {
        orientation: "h", x: -size.left / (size.width - size.left - size.right), y: -keys.height / size.height, xanchor: "left", yanchor: "top", entrywidth: longest - 40, itemclick: false, itemdoubleclick: false,
        bgcolor: "rgba(0,0,0,0)", font: { color: c.ink, size: 12.5 },
      },
      ...Object.assign({}, ...parts.map((p) => p.axes)), shapes: parts.flatMap((p) => p.shapes), annotations: [...parts.flatMap((p) => p.annotations), ...keys.list],
    };
    return Plotly.react(place, [...parts.flatMap((p) => p.marks).map((t) => ({ ...t, showlegend: false })), ...marks], layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("worth", (place, data) => () => draw(place, data));
})();
