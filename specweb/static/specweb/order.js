// Draws the starts of a job along their order: speed against the arm's median, below it clock and temperature; blocks shaded.
"use strict";
(() => {
  const { plain, textWidth, NARROW_PX } = specwebPlots;

  function told(s) {
    const clock = s.clock ? `<br>${[...new Set(s.clock.map((v) => Math.round(v).toLocaleString("en-US")))].join("–")} MHz` : "", heat = s.heat === null ? "" : `<br>${s.heat} °C`;
    const percent = s.percent === null ? "no speed is known" : `${s.percent > 0 ? "+" : ""}${s.percent.toFixed(1)} % against its median`;
    return `start ${s.place}, block ${s.block}: ${plain(s.arm)}<br>${percent}<br>${s.speeds.map(plain).join("<br>")}${clock}${heat}${s.counts ? "" : `<br>${plain(s.fate)}`}`;
  }

  function ranged(values, least) {
    const low = Math.min(...values), high = Math.max(...values), pad = Math.max((high - low) * 0.12, least);
    return [low - pad, high + pad];
  }

  function draw(place, data) {
    const c = specwebPlots.colours(data.starts), width = Math.floor(place.clientWidth), narrow = width < NARROW_PX;
    const known = data.starts.filter((s) => s.percent !== null), clocks = data.starts.filter((s) => s.clock), heats = data.starts.filter((s) => s.heat !== null);
    const arms = byMode(known);
    const panels = [{ title: "speed against the arm's median, %", height: narrow ? 170 : 190, left: 50, axis: { range: ranged([0, ...known.map((s) => s.percent)], 0.6), nticks: 6, ticksuffix: "" } }];
    if (clocks.length) panels.push({ title: "clock, MHz: lowest to highest", height: narrow ? 70 : 84, left: 50, axis: { range: ranged(clocks.flatMap((s) => s.clock), 20) } });
    if (heats.length) panels.push({ title: "temperature, °C: highest", height: narrow ? 60 : 70, left: 50, axis: { range: ranged(heats.map((s) => s.heat), 1) } });
    const last = data.blocks.at(-1)[2], range = [0.4, last + 0.6];
    const drawn = specwebTracks.stack(c, width, panels, { range, title: "start, in the order of running", tickformat: "d" }, specwebTracks.BAND_PX);
    const room = ((width - 64) / data.blocks.length), word = textWidth("block 99", `11.5px ${c.family}`) + 8 < room ? "block " : "";
    specwebTracks.bands(drawn, c, data.blocks.map(([block, from, to]) => ({ name: `${word}${block}`, from: from - 0.5, to: to + 0.5 })), range);
    const mine = (s) => c.modes[s.mode];
    const marks = (rows, y, axis, size) => ({
      type: "scatter", mode: "markers", x: rows.map((s) => s.place), y: rows.map(y), xaxis: "x", yaxis: `y${axis}`, customdata: rows.map((s) => s.href),
      marker: { size, color: rows.map(mine), symbol: rows.map((s) => (s.counts && s.mode !== "off" ? s.symbol : `${s.symbol}-open`)), line: { width: 1.5, color: rows.map((s) => (s.counts && s.mode !== "off" ? c.bg : mine(s))) }, opacity: rows.map((s) => (s.counts ? 1 : 0.6)) },
      text: rows.map(told), hovertemplate: "%{text}<extra></extra>",
    });
    const traces = [marks(known, (s) => s.percent, "", narrow ? 8 : 9)];
    const void_ = known.filter((s) => !s.counts);
    if (void_.length) traces.push({ type: "scatter", mode: "markers", x: void_.map((s) => s.place), y: void_.map((s) => s.percent), marker: { size: narrow ? 7 : 8, symbol: "x-thin", line: { width: 1.2, color: void_.map(mine) } }, hoverinfo: "skip" });
    if (data.line) traces.push({ type: "scatter", mode: "lines", x: data.line.map((p) => p[0]), y: data.line.map((p) => p[1]), line: { color: c.soft, width: 1.4, dash: "dot" }, hoverinfo: "skip" });
    if (clocks.length) {
      const x = clocks.flatMap((s) => [s.place, s.place, null]), y = clocks.flatMap((s) => [...s.clock, null]);
      traces.push({ type: "scatter", mode: "lines", x, y, yaxis: "y2", line: { color: c.faint, width: 3 }, hoverinfo: "skip" }, marks(clocks, (s) => s.clock[1], "2", 6));
    }
    if (heats.length) traces.push(marks(heats, (s) => s.heat, specwebTracks.axis(panels.length - 1), 6));
    drawn.layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: 0, y1: 0, line: { color: c.faint, width: 1 } });
    keys(drawn, arms, traces, c, width);
    return Plotly.react(place, traces, drawn.layout, specwebPlots.CONFIG);
  }

  // A mode has one mark, so that its arms share one.
  function byMode(starts) {
    const found = new Map();
    for (const s of starts) found.set(s.mode, { mode: s.mode, symbol: s.symbol, names: (found.get(s.mode)?.names || new Set()).add(s.arm) });
    return [...found.values()].map((m) => ({ ...m, arm: [...m.names].join(", ") }));
  }

  // Which mark is which arm, below the axis, in as many rows as the names need; hollow ones are explained with them.
  function keys(drawn, arms, traces, c, width) {
    let x = 0, row = 0;
    const font = `12px ${c.family}`, rows = [];
    for (const s of arms) {
      const needs = 18 + textWidth(s.arm, font) + 14;
      if (x + needs > width && x > 0) [x, row] = [0, row + 1];
      rows.push({ s, x, row });
      x += needs;
    }
    const shiftOf = (r) => -(44 + 18 * r.row), margin = drawn.layout.margin;
    for (const r of rows) {
      const at = { showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0, xanchor: "left", yanchor: "top", yshift: shiftOf(r), captureevents: false };
      drawn.layout.annotations.push({ ...at, xshift: r.x - margin.l, text: r.s.mode === "off" ? "○" : GLYPHS[r.s.symbol] || "●", font: { color: c.modes[r.s.mode], size: 13 } });
      drawn.layout.annotations.push({ ...at, xshift: r.x - margin.l + 18, text: plain(specwebPlots.fitting(r.s.arm, width - 24, font)), font: { color: c.soft, size: 12 } });
    }
    margin.b += 18 * (row + 1);
    drawn.layout.height += 18 * (row + 1);
  }

  const GLYPHS = { circle: "●", diamond: "◆", "star-diamond": "✦", "triangle-up": "▲", "triangle-down": "▼", star: "★", square: "■", cross: "✚", x: "✖", hexagon: "⬢", pentagon: "⬟", "triangle-right": "▶", "triangle-left": "◀", hexagram: "✡", hourglass: "⧗" };

  specwebPlots.plot("order-of-starts", (place, data) => {
    specwebBehind.stand(place, data);
    return () => draw(place, data);
  });
})();
