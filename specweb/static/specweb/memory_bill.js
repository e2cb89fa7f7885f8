// Draws what the baseline takes of memory and what each arm adds, a bar for each; each hardware has a scale of its own, up to its card.
"use strict";
(() => {
  const { plain, textWidth, fitting, NARROW_PX } = specwebPlots;
  const { at } = specwebPanels;
  const BAR_PX = 14, HEAD_PX = 34, FOOT_PX = 8;
  const told = (bytes) => {
    const gib = Math.abs(bytes) >= 2 ** 30, v = bytes / 2 ** (gib ? 30 : 20), digits = Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2;
    return `${v.toFixed(digits).replace("-", "−")} ${gib ? "GiB" : "MiB"}`;
  };
  const signed = (bytes) => (bytes < 0 ? told(bytes) : `+${told(bytes)}`);

  // Places from the top; a group's bars are shares of its own scale.
  function placed(data, narrow) {
    const row = narrow ? 44 : 28, rows = [], groups = [];
    let y = 0;
    for (const group of data.groups) {
      const scale = group.card || Math.max(...group.rows.map((r) => r.baseline + Math.max(r.growth, 0)));
      groups.push({ ...group, y: y + 15, from: y + HEAD_PX - 6, to: y + HEAD_PX + group.rows.length * row });
      y += HEAD_PX;
      for (const r of group.rows) {
        rows.push({ ...r, where: group.where, card: group.card, y: y + (narrow ? 31 : row / 2), base: r.baseline / scale, end: (r.baseline + r.growth) / scale });
        y += row;
      }
      y += 10;
    }
    return { rows, groups, height: y };
  }

  function shapes(rows, groups, c) {
    const bar = (r, x0, x1, rest) => ({ type: "rect", xref: "x", yref: "y", x0, x1, y0: r.y - BAR_PX / 2, y1: r.y + BAR_PX / 2, ...rest });
    return [
      ...groups.filter((g) => g.card).map((g) => ({ type: "line", xref: "x", yref: "y", x0: 1, x1: 1, y0: g.from, y1: g.to, line: { color: c.ink, width: 2 } })),
      ...rows.flatMap((r) => [
        bar(r, 0, Math.min(r.base, r.end), { fillcolor: c.modes.off, opacity: 0.55, line: { width: 0 } }),
        bar(r, Math.min(r.base, r.end), Math.max(r.base, r.end), r.growth >= 0 ? { fillcolor: c.modes[r.mode], line: { width: 1, color: c.modes[r.mode] } } : { fillcolor: "rgba(0,0,0,0)", line: { width: 1, color: c.modes[r.mode], dash: "dot" } }),
      ]),
    ];
  }

  function draw(place, data) {
    const width = Math.floor(place.clientWidth), narrow = width < NARROW_PX, { rows, groups, height } = placed(data, narrow), c = specwebPlots.colours([...rows, { mode: "off" }]);
    const longest = Math.max(...rows.map((r) => textWidth(r.arm, `13px ${c.family}`)));
    const left = narrow ? 4 : Math.min(Math.ceil(longest) + 28, Math.floor(width * 0.36)), right = 96, size = { width, left, right, height };
    const annotations = groups.flatMap((g) => {
      const title = fitting(g.where, width * (narrow ? 1 : 0.6), `650 13.5px ${c.family}`), after = textWidth(title, `650 13.5px ${c.family}`) + 10;
      const detail = g.card ? `card of ${told(g.card)}` : g.of;
      return [
        at(size, 0, g.y, title, { font: { color: c.ink, size: 13.5, weight: 650 } }),
        ...(width - after > 90 ? [at(size, after, g.y, fitting(detail, width - after, `12.5px ${c.family}`), { font: { color: c.soft, size: 12.5 } })] : []),
      ];
    });
    for (const r of rows) {
      const font = { color: c.soft, size: 13 };
      annotations.push(narrow ? at(size, 4, r.y - 18, fitting(r.arm, width - 110, `13px ${c.family}`), { font }) : at(size, 14, r.y, fitting(r.arm, left - 24, `13px ${c.family}`), { font }));
      annotations.push(at(size, width, r.y, signed(r.growth), { xanchor: "right", font: { color: c.ink, size: 12.5, weight: 650 } }));
    }
    const marks = {
      type: "scatter", mode: "markers", x: rows.map((r) => r.end), y: rows.map((r) => r.y), customdata: rows.map((r) => r.href), cliponaxis: false,
      marker: { size: 10, symbol: rows.map((r) => r.symbol), color: rows.map((r) => c.modes[r.mode]), line: { width: 1.5, color: rows.map((r) => (r.symbol.endsWith("-open") ? c.modes[r.mode] : c.bg)) } },
      text: rows.map((r) => `${plain(fitting(r.arm, 300, `13px ${c.family}`))}<br>baseline ${told(r.baseline)}, arm ${signed(r.growth)}<br>${r.card ? `of ${told(r.card)}` : plain(r.of)}`), hovertemplate: "%{text}<extra></extra>",
    };
    const axis = { fixedrange: true, showticklabels: false, showgrid: false, zeroline: false };
    const layout = {
      ...specwebPlots.base(c, width, height + FOOT_PX), margin: { l: left, r: right, t: 0, b: FOOT_PX, pad: 0 }, shapes: shapes(rows, groups, c), annotations,
      xaxis: { ...axis, range: [0, Math.max(1.02, ...rows.map((r) => r.end * 1.02))] }, yaxis: { ...axis, range: [height, 0] },
    };
    return Plotly.react(place, [marks], layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("memory-bill", (place, data) => () => draw(place, data));
})();
