// Draws what was sampled while a trial ran: a panel for each unit over the trial's time, its phases shaded.
"use strict";
(() => {
  const { plain, textWidth, NARROW_PX } = specwebPlots;
  const LINES = [["--m-draft", "solid"], ["--m-dflash", "dash"], ["--m-ngram-simple", "dot"], ["--m-suffix", "dashdot"]];
  const MARKS = ["───", "╌╌╌", "┈┈┈", "─┈─"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = (v) => v.toLocaleString("en-US", { maximumFractionDigits: v < 100 ? 1 : 0 });

  function draw(place, data) {
    const c = specwebPlots.colours([]), width = Math.floor(place.clientWidth), narrow = width < NARROW_PX;
    const ends = data.phases.flatMap(([, from, to]) => [from, to]), at = data.panels.flatMap((p) => p.series.flatMap((s) => [s.at[0], s.at.at(-1)]));
    const range = [Math.min(0, ...at), Math.max(...ends, ...at)];
    const named = data.panels.map((p) => names(p, c, width));
    const panels = data.panels.map((p, i) => {
      const all = p.series.flatMap((s) => [s.least, s.most]), low = Math.min(...all), high = Math.max(...all), pad = (high - low) * 0.12 || Math.max(1, Math.abs(high) * 0.02);
      const widest = Math.max(...[low, high].map((v) => textWidth(shown(v), `11px ${c.family}`)));
      return { title: p.unit, titleRows: named[i].at(-1).row + 1, height: narrow ? 78 : 92, left: widest + 18, axis: { range: p.name === "load" ? [0, Math.max(100, high)] : [Math.max(0, low - pad), high + pad] } };
    });
    const drawn = specwebTracks.stack(c, width, panels, { range, title: "seconds from the start of the trial" }, specwebTracks.BAND_PX);
    specwebTracks.bands(drawn, c, data.phases.map(([name, from, to]) => ({ name, from, to })), range);
    const traces = data.panels.flatMap((p, i) => p.series.map((s, k) => ({
      type: "scatter", mode: s.at.length < 60 ? "lines+markers" : "lines", x: s.at, y: s.values, xaxis: "x", yaxis: `y${specwebTracks.axis(i)}`,
      customdata: s.lines.map((n) => `${data.href}?line=${n}#L${n}`),
      line: { color: colour(LINES[k % LINES.length][0]), width: 1.6, dash: LINES[k % LINES.length][1] }, marker: { size: 3.5, symbol: ["circle", "square", "diamond", "x"][k % 4] },
      hovertemplate: `${plain(s.name)}: %{y:,.1f}<br>%{x:.1f} s<extra></extra>`,
    })));
    legend(drawn.layout, named, c);
    return Plotly.react(place, traces, drawn.layout, specwebPlots.CONFIG);
  }

  // Names of a panel's lines right of its unit, each after a piece of its line, in as many rows as they need.
  function names(panel, c, width) {
    const font = `11.5px ${c.family}`, begin = textWidth(panel.unit, `12.5px ${c.family}`) + 18;
    let x = begin, row = 0;
    return panel.series.map((s, k) => {
      const mark = MARKS[k % MARKS.length], gap = textWidth(mark, font) + 4, needs = gap + textWidth(s.name, font) + 12;
      if (x + needs > width && x > begin) [x, row] = [begin, row + 1];
      const place = { mark, name: s.name, x, row, gap, colour: colour(LINES[k % LINES.length][0]) };
      x += needs;
      return place;
    });
  }

  function legend(layout, all, c) {
    all.forEach((places, i) => {
      const head = layout.annotations[i];
      for (const { mark, name, x, row, gap, colour: own } of places) {
        const at = { ...head, yshift: -16 * row };
        layout.annotations.push({ ...at, xshift: head.xshift + x, text: mark, font: { color: own, size: 11.5 } });
        layout.annotations.push({ ...at, xshift: head.xshift + x + gap, text: plain(name), font: { color: c.soft, size: 11.5 } });
      }
    });
  }

  specwebPlots.plot("samples", (place, data) => {
    specwebBehind.stand(place, data);
    return () => draw(place, data);
  });
})();
