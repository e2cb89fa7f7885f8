// Draws tokens per target pass against speed-up, a panel for each kind of work: both axes log, so that arms of equal cost lie on
// parallel lines. The tick on the line of 1 is what the arm needs here; the dotted line leads from it to what the arm has.
"use strict";
(() => {
  const { plain, textWidth, NARROW_PX } = specwebPlots;
  const WIDE_PX = 960, HEAD_PX = 30, FOOT_PX = 46, GAP_PX = 22, LABEL_PX = 13;
  const PASS_TICKS = [1, 2, 4, 3, 8, 6, 1.5, 16, 12, 1.2, 32];

  // Speed-ups share one axis over all panels; passes have each panel's own, since kinds of work lie far apart.
  const padded = (values) => {
    const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values)), pad = (high - low) * 0.08;
    return [low - pad, high + pad];
  };
  const passSpan = (points) => padded([1, 2, ...points.flatMap((p) => [p.x, p.break_even || 1])]);
  const ratioSpan = (points, margin) =>
    padded([0.8, 1.25, 1 + margin, 1 / (1 + margin), ...points.flatMap((p) => [p.estimate, p.low, p.high]).filter((v) => v > 0).map((v) => Math.min(Math.max(v, 0.01), 100))]);

  // Where the panels lie, in pixels: as many in a row as are still wide enough to read.
  function grid(n, width) {
    const columns = Math.min(n, width < NARROW_PX ? 1 : width < WIDE_PX ? 2 : 3), left = 44;
    const each = (width - left - (columns - 1) * (GAP_PX + left)) / columns, tall = width < NARROW_PX ? 210 : 240;
    const panels = Array.from({ length: n }, (_, i) => {
      const row = Math.floor(i / columns), column = i % columns;
      return { left: left + column * (each + left + GAP_PX), top: row * (HEAD_PX + tall + FOOT_PX) + HEAD_PX, width: each, height: tall };
    });
    return { panels, height: Math.ceil(n / columns) * (HEAD_PX + tall + FOOT_PX) };
  }

  const overlap = (a, b) => Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));

  // A place for each arm's name beside its mark: the first side where it covers no mark, interval or other name, else where it covers least.
  function placedNames(points, at, box, family) {
    const taken = points.flatMap((p) => {
      const { x, y, low, high, needs, one } = at(p);
      return [{ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }, { left: x - 3, right: x + 3, top: high, bottom: low }, ...(needs === null ? [] : [{ left: needs - 3, right: needs + 3, top: one - 7, bottom: one + 7 }])];
    });
    return points.map((p) => {
      const { x, y, low, high } = at(p), w = textWidth(p.arm, `${LABEL_PX - 1}px ${family}`) + 2;
      const sides = [[x + 10 + w / 2, y], [x - 10 - w / 2, y], [x, high - 11], [x, low + 11], [x + 8 + w / 2, y - 13], [x + 8 + w / 2, y + 13], [x - 8 - w / 2, y - 13], [x - 8 - w / 2, y + 13]];
      let best = null;
      for (const [cx, cy] of sides) {
        const r = { left: cx - w / 2, right: cx + w / 2, top: cy - 8, bottom: cy + 8 };
        const outside = Math.max(0, -r.left, r.right - box.width, -r.top, r.bottom - box.height) * 100;
        const cost = outside + taken.reduce((sum, t) => sum + overlap(r, t), 0);
        if (best === null || cost < best.cost) best = { cost, r, cx, cy };
        if (cost === 0) break;
      }
      taken.push(best.r);
      return { text: p.arm, x: best.cx, y: best.cy };
    });
  }

  function panelParts(panel, i, box, span, size, margin, c) {
    const n = i ? i + 1 : "", axis = { xaxis: `x${n}`, yaxis: `y${n}` }, refs = { xref: `x${n}`, yref: `y${n}` };
    const px = (v) => ((Math.log10(v) - span.x[0]) / (span.x[1] - span.x[0])) * box.width;
    const py = (v) => box.height - ((Math.log10(v) - span.y[0]) / (span.y[1] - span.y[0])) * box.height;
    const at = (p) => ({ x: px(p.x), y: py(p.estimate), low: py(p.low || p.estimate), high: py(p.high || p.estimate), needs: p.break_even ? px(p.break_even) : null, one: py(1) });
    const marks = panel.points.map((p) => ({
      type: "scatter", mode: "markers", ...axis, cliponaxis: false, x: [p.x], y: [p.estimate], customdata: [p.href],
      error_y: { type: "data", symmetric: false, width: 0, thickness: 2, color: c.modes[p.mode], array: [p.high ? p.high - p.estimate : 0], arrayminus: [p.low ? p.estimate - p.low : 0] },
      marker: { size: 10, symbol: p.symbol, color: c.modes[p.mode], line: { width: 1.5, color: p.symbol.endsWith("-open") ? c.modes[p.mode] : c.bg } },
      text: [`${plain(p.arm)} ${p.text} (${plain(p.range)})<br>${plain(p.passes)}`], hovertemplate: "%{text}<extra></extra>",
    }));
    const needed = panel.points.filter((p) => p.break_even);
    const line = (p) => ({ type: "line", ...refs, x0: p.break_even, y0: 1, x1: p.x, y1: p.estimate, line: { color: c.modes[p.mode], width: 1, dash: "dot" }, layer: "below" });
    const tick = (p) => ({ type: "line", ...refs, xsizemode: "scaled", ysizemode: "pixel", yanchor: 1, x0: p.break_even, x1: p.break_even, y0: -6, y1: 6, line: { color: c.modes[p.mode], width: 2 } });
    const across = (y0, y1, rest) => ({ xref: `x${n} domain`, yref: `y${n}`, x0: 0, x1: 1, y0, y1, layer: "below", ...rest });
    const pin = { showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "middle", captureevents: false };
    const shift = (x, y) => ({ xshift: x - size.left, yshift: -y });
    const titleWidth = textWidth(panel.title, `650 13.5px ${c.family}`);
    return {
      marks,
      shapes: [
        across(1 / (1 + margin), 1 + margin, { type: "rect", fillcolor: c.band, line: { width: 0 } }),
        across(1, 1, { type: "line", line: { color: c.faint, width: 1.2 } }),
        ...needed.map(line), ...needed.map(tick),
      ],
      annotations: [
        { ...pin, ...shift(box.left, box.top - 15), text: plain(panel.title), font: { color: c.ink, size: 13.5, weight: 650 } },
        { ...pin, ...shift(box.left + titleWidth + 10, box.top - 15), text: plain(panel.detail), font: { color: c.soft, size: 12.5 } },
        { ...pin, ...shift(box.left + box.width, box.top + box.height + 32), xanchor: "right", text: "tokens per target pass →", font: { color: c.soft, size: 12 } },
        ...placedNames(panel.points, at, box, c.family).map((l) => ({ ...pin, ...shift(box.left + l.x, box.top + l.y), xanchor: "center", text: plain(l.text), bgcolor: c.bg, borderpad: 0, font: { color: c.soft, size: LABEL_PX - 1 } })),
      ],
    };
  }

  function axes(i, box, span, size, c) {
    const n = i ? i + 1 : "", x = specwebPlots.ticks(PASS_TICKS, span.x, box.width, 30), y = specwebPlots.ticks(specwebPlots.RATIO_TICKS, span.y, box.height, 26);
    const inner = size.width - size.left, base = { type: "log", fixedrange: true, tickmode: "array", gridcolor: c.line, zeroline: false, ticks: "", tickfont: { color: c.soft, size: 12 } };
    return {
      [`xaxis${n}`]: { ...base, range: span.x, tickvals: x, ticktext: x.map(String), domain: [(box.left - size.left) / inner, (box.left - size.left + box.width) / inner], anchor: `y${n}` },
      [`yaxis${n}`]: { ...base, range: span.y, tickvals: y, ticktext: y.map((t) => `${t}×`), domain: [1 - (box.top + box.height) / size.height, 1 - box.top / size.height], anchor: `x${n}` },
    };
  }

  function draw(place, data) {
    const points = data.panels.flatMap((p) => p.points), c = specwebPlots.colours(points), across = ratioSpan(points, data.margin);
    const spans = data.panels.map((p) => ({ x: passSpan(p.points), y: across }));
    const width = Math.floor(place.clientWidth), { panels, height } = grid(data.panels.length, width), size = { width, height, left: panels[0].left };
    const parts = data.panels.map((panel, i) => panelParts(panel, i, panels[i], spans[i], size, data.margin, c));
    const layout = {
      width, height, margin: { l: size.left, r: 0, t: 0, b: 0, pad: 0 }, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: c.family, color: c.ink, size: 13 }, dragmode: false, hovermode: "closest",
      hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { family: c.family, color: c.ink, size: 13 }, align: "left" },
      ...Object.assign({}, ...panels.map((box, i) => axes(i, box, spans[i], size, c))),
      shapes: parts.flatMap((p) => p.shapes), annotations: parts.flatMap((p) => p.annotations),
    };
    return Plotly.react(place, parts.flatMap((p) => p.marks), layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("scatter", (place, data) => () => draw(place, data));
})();
