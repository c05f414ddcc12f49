// The drawings come with the page; where there is a script, the large ones can be pointed at.
(() => {
  "use strict";
  const charts = new Map();
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const draw = figure => {
    const place = figure.querySelector(".drawing");
    const data = JSON.parse(figure.dataset.points);
    const old = charts.get(figure);
    if (old) old.destroy();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const chart = new uPlot({
      width: Math.max(200, place.clientWidth), height: 260, cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false, range: (_, min, max) => [0, Math.max(1, max)] },
                y: { range: [0, Number(figure.dataset.budget) * 1.02] } },
      axes: [{ ...axis, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7, 1e8] },
             { ...axis, size: 48 }],
      series: [{ label: "queries asked" },
               { label: figure.dataset.label || "epsilon left", stroke: colour("--accent"), fill: colour("--area"), width: 2,
                 paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
                 value: (_, left) => left === null ? "–" : left.toFixed(3) }],
      // How it stands now, until somebody points elsewhere.
      hooks: { ready: [made => made.setLegend({ idx: data[0].length - 1 })] },
    }, data, place);
    place.classList.add("drawn");
    chart.root.setAttribute("aria-hidden", "true"); // the drawing below it has the words
    charts.set(figure, chart);
  };
  const drawAll = () => {
    for (const figure of charts.keys()) if (!figure.isConnected) { charts.get(figure).destroy(); charts.delete(figure); }
    document.querySelectorAll("figure[data-points]").forEach(draw);
  };
  const stale = is => { document.getElementById("stale").hidden = !is; };

  document.addEventListener("htmx:afterSwap", drawAll);
  document.addEventListener("htmx:afterRequest", event => stale(!event.detail.xhr || event.detail.xhr.status === 0 || event.detail.xhr.status >= 400));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 100); });
  drawAll();
})();
