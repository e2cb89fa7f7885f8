// Draws the decoding steps of one request along its time: what each drafted as a frame, what of it was accepted filled, how long it took below.
"use strict";
(() => {
  const { NARROW_PX } = specwebPlots;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(place, data) {
    const c = specwebPlots.colours([]), width = Math.floor(place.clientWidth), narrow = width < NARROW_PX, { steps } = data;
    const end = Math.max(...steps.map(([, at, ms]) => at + ms)), x = steps.map(([, at, ms]) => at + ms / 2), wide = steps.map(([, , ms]) => ms);
    const texts = steps.map(([n, at, ms, drafted, accepted, sent]) => `step ${n}: ${ms.toFixed(2)} ms, from ${at.toFixed(1)} ms<br>${drafted ? `${accepted} of ${drafted} drafted tokens accepted` : "no draft"}<br>${sent} token${sent === 1 ? "" : "s"} sent`);
    const hrefs = steps.map(() => data.href);
    const bar = (name, y, marker) => ({ type: "bar", name, x, y, width: wide, marker, customdata: hrefs, text: texts, textposition: "none", hovertemplate: "%{text}<extra></extra>" });
    const panels = [
      ...(data.most_drafted ? [{ title: data.means.length ? narrow ? "tokens a step: accepted, and means" : "tokens a step: dots accepted; means of drafted (dotted) and accepted" : "tokens a step: frame drafted, filled accepted", height: narrow ? 130 : 150, axis: { range: [data.means.length ? -data.most_drafted * 0.04 : 0, data.most_drafted * 1.08], dtick: Math.max(1, Math.ceil(data.most_drafted / 4)) } }] : []),
      { title: "ms a step", height: narrow ? 90 : 100, axis: { rangemode: "tozero" } },
    ];
    const drawn = specwebTracks.stack(c, width, panels, { range: [0, end], title: "ms since the first token" });
    const draft = colour("--part-draft"), verify = colour("--part-verify"), thin = steps.length > width / 4 ? 0 : 1;
    const traces = !data.most_drafted ? [] : data.means.length ? dense(x, steps, data.means, texts, data.href, draft, c) : [
      bar("drafted", steps.map((s) => s[3]), { color: "rgba(0,0,0,0)", line: { color: draft, width: 1 } }),
      bar("accepted", steps.map((s) => s[4]), { color: draft, line: { color: c.bg, width: thin } }),
    ];
    traces.push({ ...bar("ms", steps.map((s) => s[2]), { color: verify, line: { color: c.bg, width: thin } }), yaxis: data.most_drafted ? "y2" : "y" });
    Object.assign(drawn.layout, { barmode: "overlay", bargap: 0 });
    return Plotly.react(place, traces, drawn.layout, specwebPlots.CONFIG);
  }

  // Too many steps for bars: a faint mark for what each accepted, and the means of all of them as lines.
  function dense(x, steps, means, texts, href, draft, c) {
    const line = (name, k, dash) => ({ type: "scatter", mode: "lines", name, x: means.map((m) => m[0]), y: means.map((m) => m[k]), line: { color: draft, width: 2.2, dash, shape: "hvh" }, hovertemplate: `${name}, mean: %{y:.2f}<extra></extra>` });
    return [
      { type: "scatter", mode: "markers", x, y: steps.map((s) => s[4]), customdata: steps.map(() => href), marker: { color: c.faint, size: 4, opacity: 0.35 }, text: texts, hovertemplate: "%{text}<extra></extra>" },
      line("drafted", 1, "dot"),
      line("accepted", 2, "solid"),
    ];
  }

  specwebPlots.plot("cycles", (place, data) => {
    specwebBehind.stand(place, data);
    return () => draw(place, data);
  });
})();
