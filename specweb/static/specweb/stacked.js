// Draws stacked bars: a group for each kind of work, a bar for each arm; as quantities, and where asked for as shares beside or below.
"use strict";
(() => {
  const { plain, textWidth, fitting, base, NARROW_PX } = specwebPlots;
  const TOP_PX = 4, AXIS_PX = 40, KEY_PX = 20, GAP_PX = 28, SHOWN_PX = 58;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = (v) => (v >= 1000 ? Math.round(v).toLocaleString("en-US") : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));
  const sum = (r) => Object.values(r.parts).reduce((all, v) => all + v, 0);

  // Places in pixels from the top of a panel, as the y axes count.
  function placed(data) {
    let y = TOP_PX;
    const heads = [], rows = [];
    for (const group of data.groups) {
      if (group.title) {
        heads.push({ ...group, line: y, y: y + data.group_px - 13 });
        y += data.group_px;
      }
      for (const row of group.rows) {
        rows.push({ ...row, y: y + data.row_px / 2 });
        y += data.row_px;
      }
    }
    return { heads, rows, height: y + 6 };
  }

  // Names of the parts with their colours, in as many rows as they need.
  function keys(items, width, c) {
    const font = `12px ${c.family}`;
    let x = 0, row = 0;
    const places = items.map((k) => {
      const needs = 20 + textWidth(k.name, font) + 16;
      if (x + needs > width && x > 0) [x, row] = [0, row + 1];
      const place = { ...k, x, row };
      x += needs;
      return place;
    });
    return { places, height: places.length ? (row + 1) * KEY_PX + 4 : 0 };
  }

  function bars(data, rows, c, share, suffix) {
    const before = rows.map(() => 0);
    return data.keys.map((key) => {
      const own = colour(`--${key.token}`), values = rows.map((r) => ((r.parts[key.key] || 0) * (share ? 100 / sum(r) : 1)));
      const from = [...before];
      values.forEach((v, i) => { before[i] += v; });
      const told = rows.map((r) => {
        const value = r.parts[key.key] || 0;
        return `${plain(r.arm)}<br>${plain(key.name)}: ${shown(value)} ${plain(data.unit)}${data.shares ? `, ${((100 * value) / sum(r)).toFixed(1)} %` : ""}<br>${plain(r.said)}`;
      });
      return {
        type: "bar", orientation: "h", x: values, base: from, y: rows.map((r) => r.y), width: data.row_px * 0.66, xaxis: `x${suffix}`, yaxis: `y${suffix}`,
        customdata: rows.map((r) => r.href), text: told, textposition: "none", hovertemplate: "%{text}<extra></extra>",
        marker: { color: own, line: { width: 1, color: c.bg }, pattern: key.pattern ? { shape: key.pattern, fillmode: "replace", fgcolor: own, bgcolor: c.bg, size: 6, solidity: 0.45 } : { shape: "" } },
      };
    });
  }

  function draw(place, data) {
    const { heads, rows, height } = placed(data), c = specwebPlots.colours(rows), width = Math.floor(place.clientWidth), narrow = width < NARROW_PX;
    const font = `13px ${c.family}`, longest = Math.max(...rows.map((r) => textWidth(r.arm, font)));
    const left = Math.min(Math.ceil(longest) + 22, Math.floor(width * (narrow ? 0.36 : 0.26)));
    const marked = data.mark_name && rows.some((r) => r.mark !== null);
    const named = keys([...data.keys, ...(marked ? [{ key: "mark", name: data.mark_name }] : [])], width, c);
    const beside = data.shares && !narrow, below = data.shares && narrow, head = data.shares || data.line ? 20 : 0;
    const right = data.shares ? 28 : 8; // the word 100 % stands half beyond the axis
    const top = named.height + head, inner = below ? 2 * height + AXIS_PX + head : height;
    const layout = { ...base(c, width, top + inner + AXIS_PX), margin: { l: left, r: right, t: top, b: AXIS_PX, pad: 0, autoexpand: false }, barmode: "overlay", shapes: [], annotations: [] };
    const plotWidth = width - left - right, half = beside ? (plotWidth - GAP_PX) / plotWidth / 2 : 1;
    const axis = (more) => ({ fixedrange: true, zeroline: false, gridcolor: c.line, tickfont: { color: c.soft, size: 12 }, ticks: "", nticks: narrow ? 5 : 7, ...more });
    const high = Math.max(...rows.map((r) => Math.max(sum(r), r.mark || 0)), data.line ? data.line.value : 0);
    // Room at the right for each bar's sum.
    const room = (half * plotWidth) / Math.max(40, half * plotWidth - SHOWN_PX);
    layout.xaxis = axis({ domain: [0, half], range: [0, high * room], anchor: "y" });
    layout.yaxis = axis({ domain: below ? [1 - height / inner, 1] : [0, 1], range: [height, 0], showticklabels: false, showgrid: false, anchor: "x" });
    const traces = bars(data, rows, c, false, "");
    if (data.shares) {
      layout.xaxis2 = axis({ domain: beside ? [1 - half, 1] : [0, 1], range: [0, 100.4], anchor: "y2", ticksuffix: " %" });
      layout.yaxis2 = axis({ domain: below ? [0, height / inner] : [0, 1], range: [height, 0], showticklabels: false, showgrid: false, anchor: "x2" });
      traces.push(...bars(data, rows, c, true, "2"));
    }
    if (marked) {
      const mine = rows.filter((r) => r.mark !== null);
      traces.push({ type: "scatter", mode: "markers", x: mine.map((r) => r.mark), y: mine.map((r) => r.y), marker: { symbol: "line-ns", size: 17, line: { width: 2.5, color: c.ink } }, text: mine.map((r) => `${plain(r.arm)}<br>${plain(r.said)}`), hovertemplate: "%{text}<extra></extra>", customdata: mine.map((r) => r.href) });
    }
    label(layout, { data, heads, rows, c, left, width, half, plotWidth, named, below, beside, height, inner, high, narrow, top });
    return Plotly.react(place, traces, layout, specwebPlots.CONFIG);
  }

  function label(layout, at) {
    const { data, heads, rows, c, left, width, half, plotWidth, named, below, beside, inner, height } = at;
    const words = { showarrow: false, captureevents: false, xanchor: "left", align: "left" };
    const panels = below ? ["y", "y2"] : ["y"];
    for (const yref of panels) {
      for (const h of heads) {
        const titled = fitting(h.title, width - 8, `650 13.5px ${c.family}`), after = textWidth(titled, `650 13.5px ${c.family}`) + 10;
        layout.annotations.push({ ...words, xref: "paper", x: 0, xshift: -left, yref, y: h.y, yanchor: "middle", text: plain(titled), font: { color: c.ink, size: 13.5, weight: 650 }, bgcolor: c.bg, borderpad: 1 });
        if (width - after > 60) layout.annotations.push({ ...words, xref: "paper", x: 0, xshift: after - left, yref, y: h.y, yanchor: "middle", text: plain(fitting(h.detail, width - after - 6, `12.5px ${c.family}`)), font: { color: c.soft, size: 12.5 }, bgcolor: c.bg, borderpad: 1 });
      }
      for (const r of rows) layout.annotations.push({ ...words, xref: "paper", x: 0, xshift: 8 - left, yref, y: r.y, yanchor: "middle", text: plain(fitting(r.arm, left - 16, `13px ${c.family}`)), font: { color: c.soft, size: 13 } });
    }
    for (const r of rows) {
      const end = Math.max(sum(r), r.mark || 0);
      layout.annotations.push({ ...words, xref: "x", x: end, xshift: 5, yref: "y", y: r.y, yanchor: "middle", text: shown(sum(r)), font: { color: c.ink, size: 12.5, weight: 650 }, bgcolor: c.bg, borderpad: 1 });
    }
    const title = (text, x, y) => layout.annotations.push({ ...words, xref: "paper", yref: "paper", x, y, yanchor: "bottom", yshift: 2, text: plain(text), font: { color: c.soft, size: 12.5 } });
    if (data.shares) {
      title(data.unit, 0, 1);
      title("share of the time", beside ? 1 - half : 0, below ? height / inner : 1);
    }
    if (data.line) against(layout, at);
    for (const k of named.places) keyOf(layout, k, at);
  }

  // The line that bars are held against, with its name above it, on the side where there is room.
  function against(layout, { data, c, left, width, plotWidth, half, high }) {
    const font = `12.5px ${c.family}`, text = fitting(data.line.name, width - 10, font), x = layout.xaxis.range[1] ? (data.line.value / layout.xaxis.range[1]) * half * plotWidth : 0;
    layout.shapes.push({ type: "line", xref: "x", x0: data.line.value, x1: data.line.value, yref: "paper", y0: 0, y1: 1, line: { color: c.ink, width: 1.5, dash: "dash" } });
    const wide = textWidth(text, font), begin = Math.max(-left, Math.min(x - wide / 2, plotWidth - wide));
    layout.annotations.push({ showarrow: false, captureevents: false, xref: "paper", yref: "paper", x: 0, xanchor: "left", xshift: begin, y: 1, yanchor: "bottom", yshift: 1, text: plain(text), font: { color: c.ink, size: 12.5 } });
  }

  function keyOf(layout, k, { data, c, left, top, inner, plotWidth }) {
    const up = top - 2 - k.row * KEY_PX, y = (px) => 1 + px / inner, x = (px) => (px - left) / plotWidth;
    if (k.key === "mark") {
      layout.shapes.push({ type: "line", xref: "paper", yref: "paper", x0: x(k.x + 6), x1: x(k.x + 6), y0: y(up - 14), y1: y(up), line: { color: c.ink, width: 2.5 } });
    } else {
      const own = colour(`--${k.token}`), box = { type: "rect", xref: "paper", yref: "paper", x0: x(k.x), x1: x(k.x + 13), y0: y(up - 13), y1: y(up - 1), line: { color: own, width: 1 } };
      layout.shapes.push({ ...box, fillcolor: k.pattern ? c.bg : own });
      // The pattern in small: strokes, dots or crosses.
      const line = (a, b, d, e) => layout.shapes.push({ type: "line", xref: "paper", yref: "paper", x0: x(k.x + a), y0: y(up - b), x1: x(k.x + d), y1: y(up - e), line: { color: own, width: 1.6 } });
      if (k.pattern === "/" || k.pattern === "x") { line(1, 12, 8, 1); line(6, 12, 13, 2); }
      if (k.pattern === "x") { line(1, 2, 8, 12); line(6, 2, 13, 12); }
      if (k.pattern === ".") for (const [a, b] of [[3, 4], [8, 4], [3, 9], [8, 9]]) line(a, b, a + 2, b);
    }
    layout.annotations.push({ showarrow: false, captureevents: false, xref: "paper", yref: "paper", x: 0, xanchor: "left", xshift: k.x + 18 - left, y: 1, yanchor: "top", yshift: up + 2, text: plain(k.name), font: { color: c.soft, size: 12 } });
  }

  specwebPlots.plot("stacked", (place, data) => () => draw(place, data));
})();
