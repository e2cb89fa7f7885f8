// Draws the requests of a trial along time: waiting for the first token, then the stream, a tick for each arrival; lanes where several ran.
"use strict";
(() => {
  const { plain, NARROW_PX } = specwebPlots;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function bar(requests, from, to, name, marker, size) {
    const mine = requests.filter((r) => from(r) !== null && to(r) !== null && to(r) > from(r));
    return {
      type: "bar", orientation: "h", name, x: mine.map((r) => to(r) - from(r)), base: mine.map(from), y: mine.map((r) => r.lane), width: size, marker,
      customdata: mine.map((r) => r.href), text: mine.map(told), textposition: "none", hovertemplate: `%{text}<extra></extra>`,
    };
  }

  const seconds = (t) => (t === null ? "never" : `${t.toFixed(3)} s`);
  function told(r) {
    const head = `${plain(r.item)}${r.warmup ? ", warm-up" : ""}<br>${plain(r.work)}`;
    const due = r.due === null ? "" : `due ${seconds(r.due)}, `;
    return `${head}<br>${due}sent ${seconds(r.sent)}<br>first token ${seconds(r.first)}, last ${seconds(r.last)}<br>${r.tokens} tokens${r.failure ? `<br>failed: ${plain(r.failure)}` : ""}`;
  }

  function draw(place, data) {
    const c = specwebPlots.colours([]), width = Math.floor(place.clientWidth), narrow = width < NARROW_PX;
    const each = Math.max(7, Math.min(22, Math.floor((narrow ? 380 : 460) / data.n_lanes))), size = each > 10 ? 0.62 : 0.8;
    const ends = data.requests.flatMap((r) => [r.sent, r.due ?? r.sent, r.closed]), low = Math.min(...ends), high = Math.max(...ends), pad = (high - low) * 0.015 || 0.01;
    const title = data.by_line ? "a line for each request, in their order" : `a lane for each of ${data.n_lanes} that ran at once`;
    const panels = [{ title, height: Math.max(40, data.n_lanes * each), left: 44, axis: { range: [data.n_lanes - 0.5, -0.5], showgrid: false, showticklabels: data.n_lanes > 1, tickformat: "d", dtick: data.n_lanes > 12 ? 5 : 1, tickvals: lanes(data.n_lanes), ticktext: lanes(data.n_lanes).map((n) => String(n + 1)) } }];
    const drawn = specwebTracks.stack(c, width, panels, { range: [low - pad, high + pad], title: "seconds from the start of the trial" }, 22);
    const wait = colour("--part-prefill"), flow = colour("--part-verify"), warm = colour("--faint");
    const shade = { color: "rgba(0,0,0,0)", line: { color: wait, width: 1.2 }, pattern: { shape: "/", fgcolor: wait, bgcolor: "rgba(0,0,0,0)", size: 5, solidity: 0.35 } };
    const first = (r) => r.first ?? r.closed, due = (r) => r.due ?? r.sent;
    const traces = [
      bar(data.requests.filter((r) => r.due !== null), (r) => r.due, (r) => Math.max(r.due, r.sent), "due, not sent yet", { color: c.band, line: { color: c.faint, width: 1 } }, size),
      bar(data.requests, (r) => r.sent, first, "until the first token", shade, size),
      bar(data.requests.filter((r) => !r.warmup), (r) => r.first, (r) => r.last, "tokens come", { color: flow }, size),
      bar(data.requests.filter((r) => r.warmup), (r) => r.first, (r) => r.last, "warm-up, not counted", { color: warm }, size),
      points(data.marks.map(([at, lane]) => [at, lane]), "arrival of tokens", { symbol: "line-ns", size: each * size * 0.8, line: { width: 1, color: c.bg } }, data.marks.map(([at, , n]) => `${n} token${n === 1 ? "" : "s"} at ${at.toFixed(3)} s`)),
      points(data.requests.filter((r) => r.failure).map((r) => [r.closed, r.lane]), "failed", { symbol: "x", size: 9, color: colour("--disable") }, data.requests.filter((r) => r.failure).map(told)),
    ].filter((t) => t.x.length);
    for (const t of traces) t.showlegend = t.name !== "arrival of tokens";
    Object.assign(drawn.layout, {
      barmode: "overlay", showlegend: true, dragmode: false,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", font: { size: 12, color: c.soft }, itemclick: false, itemdoubleclick: false, bgcolor: "rgba(0,0,0,0)" },
    });
    const rows = legendRows(traces, width - 60, c);
    drawn.layout.margin.t = rows * 20 + 4;
    drawn.layout.height += rows * 20 + 4 - 22;
    return Plotly.react(place, traces, drawn.layout, specwebPlots.CONFIG);
  }

  const lanes = (n) => Array.from({ length: n }, (_, i) => i).filter((i) => n <= 12 || i % 5 === 4);

  function legendRows(traces, room, c) {
    const widest = Math.max(...traces.map((t) => specwebPlots.textWidth(t.name, `12px ${c.family}`))) + 48;
    return Math.ceil(traces.filter((t) => t.showlegend).length / Math.max(1, Math.floor(room / widest)));
  }

  function points(places, name, marker, texts) {
    return { type: "scatter", mode: "markers", name, x: places.map((p) => p[0]), y: places.map((p) => p[1]), marker, text: texts, hovertemplate: "%{text}<extra></extra>" };
  }

  specwebPlots.plot("stream", (place, data) => {
    specwebBehind.stand(place, data);
    return () => draw(place, data);
  });
})();
