// What the charts along time share: panels below each other over one axis, places of both in pixels, bands behind them.
"use strict";
const specwebTracks = (() => {
  const { plain, textWidth, fitting, base, NARROW_PX } = specwebPlots;
  const HEAD_PX = 22, GAP_PX = 10, FOOT_PX = 42, RIGHT_PX = 14;

  const axis = (n) => (n === 0 ? "" : String(n + 1));

  // `panels`: [{height, title, titleRows, left, axis}], from the top. Gives the layout with an x axis below the last, and names of the axes.
  function stack(c, width, panels, x, topPx = 0) {
    const left = Math.max(44, ...panels.map((p) => p.left || 0)), heads = panels.map((p) => HEAD_PX + 16 * ((p.titleRows || 1) - 1)), heights = panels.map((p, i) => heads[i] + p.height + GAP_PX);
    const inner = heights.reduce((sum, h) => sum + h, 0), height = topPx + inner + FOOT_PX;
    const layout = { ...base(c, width, height), margin: { l: left, r: RIGHT_PX, t: topPx, b: FOOT_PX, pad: 0, autoexpand: false }, shapes: [], annotations: [] };
    let from = 0;
    panels.forEach((p, i) => {
      const top = from + heads[i], bottom = top + p.height;
      layout[`yaxis${axis(i)}`] = {
        domain: [1 - bottom / inner, 1 - top / inner], anchor: "x", fixedrange: true, zeroline: false, gridcolor: c.line, ticks: "", tickformat: ",",
        tickfont: { color: c.soft, size: 11 }, nticks: 4, ...p.axis,
      };
      layout.annotations.push({
        showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1 - from / inner, xanchor: "left", yanchor: "top", xshift: 4 - left,
        text: plain(fitting(p.title, width - 8, `12.5px ${c.family}`)), font: { color: c.soft, size: 12.5 }, captureevents: false,
      });
      from += heights[i];
    });
    layout.xaxis = {
      domain: [0, 1], anchor: `y${axis(panels.length - 1)}`, fixedrange: true, zeroline: false, gridcolor: c.line, tickformat: ",", ticks: "outside", tickcolor: c.line, ticklen: 4,
      tickfont: { color: c.soft, size: 11.5 }, nticks: width < NARROW_PX ? 5 : 10, title: { text: x.title, font: { color: c.soft, size: 12 }, standoff: 6 }, ...x,
    };
    if (x.title) layout.xaxis.title = { text: plain(x.title), font: { color: c.soft, size: 12 }, standoff: 6 };
    return { layout, left, inner, width: width - left - RIGHT_PX };
  }

  // Bands over all panels with their names at the top where these fit; every second is shaded.
  function bands(drawn, c, spans, [low, high]) {
    spans.forEach(({ name, from, to }, i) => {
      if (i % 2 === 0) drawn.layout.shapes.push({ type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1, fillcolor: c.band, line: { width: 0 }, layer: "below" });
      const room = ((to - from) / (high - low)) * drawn.width - 6;
      if (!name || textWidth(name, `11.5px ${c.family}`) > room) return;
      drawn.layout.annotations.push({
        showarrow: false, xref: "x", yref: "paper", x: from, y: 1, xanchor: "left", yanchor: "bottom", xshift: 3, text: plain(name), font: { color: c.faint, size: 11.5 }, captureevents: false,
      });
    });
  }

  return { stack, bands, axis, BAND_PX: 18 };
})();
