// Draws the decoding steps of one request along its time: what each drafted as a frame, what of it was accepted filled, how long it took below.
"use strict";
(() => {
  const { NARROW_PX } = specwebPlots;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(place, data) {
    const c = specwebPlots.colours([]), width = Math.floor(place.clientWidth), narrow = width < NARROW_PX, { steps } = data;
    const end = Math.max(...steps.map(([, at, ms]) => at + ms)), x = steps.map(([, at, ms]) => at + ms / 2), wide = steps.map(([, , ms]) => ms);
    const texts = steps.map(([n, at, ms, drafted, accepted, sent]) => `step ${n}: ${ms.toFixed(2)} ms, from ${at.toFixed(1)} ms<br>${drafted ? `${accepted} of ${drafted} drafted tokens accepted` : "no draft"}<br>${sent} token${sent === 1 ? "" : "s"} sent`);
    const bar = (name, y, marker) => ({ type: "bar", name, x, y, width: wide, marker, text: texts, textposition: "none", hovertemplate: "%{text}<extra></extra>" });
    const panels = [
      ...(data.most_drafted ? [{ title: "tokens a step: frame drafted, filled accepted", height: narrow ? 130 : 150, axis: { range: [0, data.most_drafted * 1.08], dtick: Math.max(1, Math.ceil(data.most_drafted / 4)) } }] : []),
      { title: "ms a step", height: narrow ? 90 : 100, axis: { rangemode: "tozero" } },
    ];
    const drawn = specwebTracks.stack(c, width, panels, { range: [0, end], title: "ms since the first token" });
    const draft = colour("--part-draft"), verify = colour("--part-verify"), thin = steps.length > width / 4 ? 0 : 1;
    const traces = data.most_drafted ? [
      bar("drafted", steps.map((s) => s[3]), { color: "rgba(0,0,0,0)", line: { color: draft, width: thin || 0.5 } }),
      bar("accepted", steps.map((s) => s[4]), { color: draft, line: { color: c.bg, width: thin } }),
    ] : [];
    traces.push({ ...bar("ms", steps.map((s) => s[2]), { color: verify, line: { color: c.bg, width: thin } }), yaxis: data.most_drafted ? "y2" : "y" });
    Object.assign(drawn.layout, { barmode: "overlay", bargap: 0 });
    return Plotly.react(place, traces, drawn.layout, specwebPlots.CONFIG);
  }

  specwebPlots.plot("cycles", (place, data) => {
    specwebBehind.stand(place, data);
    return () => draw(place, data);
  });
})();
