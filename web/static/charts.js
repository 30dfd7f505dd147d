// Draw what lies beside each chart as JSON: means with a band, single seeds thin.
"use strict";
(() => {
  // Okabe and Ito 2008: told apart with any kind of colour blindness.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
  const DASHES = [[], [8, 4], [3, 3]];
  const sizes = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const width = Math.floor(entry.contentRect.width);
      if (entry.target.plot && width > 0 && width !== entry.target.plot.width) {
        entry.target.plot.setSize({ width, height: height(width) });
      }
    }
  });

  function height(width) {
    return Math.max(220, Math.min(380, Math.round(width * 0.5)));
  }

  function draw(place) {
    const source = document.getElementById(place.dataset.chart);
    if (!source || typeof uPlot === "undefined") return;
    const chart = JSON.parse(source.textContent);
    const ink = getComputedStyle(document.body).color;
    const rule = getComputedStyle(document.documentElement).getPropertyValue("--rule").trim();
    const data = [chart.epochs];
    const series = [{ label: "epoch" }];
    const bands = [];
    chart.lines.forEach((line, number) => {
      const colour = COLOURS[number % COLOURS.length];
      const dash = DASHES[Math.floor(number / COLOURS.length) % DASHES.length];
      const value = (_, raw) => (raw === null || raw === undefined ? "–" : raw.toPrecision(4));
      if (line.low) {
        const at = data.length;
        for (const side of ["high", "low"]) {
          data.push(line[side]);
          series.push({ label: `${line.label}, ${side === "high" ? "+" : "−"} std`, stroke: colour, width: 0.5, class: "edge", points: { show: false }, value });
        }
        bands.push({ series: [at, at + 1], fill: colour + "33" });
      }
      data.push(line.values);
      series.push({ label: line.label, stroke: colour, dash, width: line.single ? 1 : 2, spanGaps: true, value });
    });
    const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 } };
    const width = Math.floor(place.clientWidth) || 600;
    place.replaceChildren();
    place.plot = new uPlot(
      {
        width,
        height: height(width),
        series,
        bands,
        scales: { x: { time: false } },
        axes: [{ ...axis, label: "epoch", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }, { ...axis, label: chart.metric }],
      },
      data,
      place
    );
    sizes.observe(place);
  }

  window.vtjobsDraw = () => {
    for (const place of document.querySelectorAll("[data-chart]")) {
      if (!place.plot) draw(place);
    }
  };
  document.addEventListener("DOMContentLoaded", window.vtjobsDraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.querySelectorAll("[data-chart]").forEach(draw);
  });
})();
