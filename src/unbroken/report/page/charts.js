"use strict";
// The charts, as Vega-Lite specifications over plain rows.  Names are values of the rows, never parts of an expression.

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const kindScale = (kinds) => ({ domain: kinds.map(([, words]) => words), range: kinds.map(([key]) => ink(key)) });

// A day by its name at its beginning, the time of the day in 24 hours between.
const momentAxis = { labelExpr: "timeFormat(datum.value, '%H:%M:%S') == '00:00:00' ? timeFormat(datum.value, '%a %d %b') : timeFormat(datum.value, '%S') == '00' ? timeFormat(datum.value, '%H:%M') : timeFormat(datum.value, '%H:%M:%S')" };

function config() {
  const [text, line] = [ink("ink"), ink("line")];
  return {
    background: null, font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line, labelLimit: 160 },
  };
}

// Rows: {run, kind, begin, end}; endings: {run, at, how, what}; one row of bars for each run.
function timelineSpec(rows, endings, kinds, description) {
  const x = { field: "begin", type: "temporal", title: null, axis: momentAxis };
  const y = { field: "run", type: "nominal", title: null, sort: null };
  const height = 22 * new Set(rows.map((row) => row.run)).size;
  return {
    description, width: "container", height, autosize: { type: "fit-x", contains: "padding" },
    layer: [
      {
        data: { values: rows }, mark: { type: "bar", height: 14 },
        encoding: {
          x, x2: { field: "end" }, y,
          color: { field: "kind", type: "nominal", title: null, legend: null, scale: kindScale(kinds) },
          tooltip: [{ field: "run" }, { field: "kind" }, { field: "begin", type: "temporal", format: "%d %b %H:%M" },
            { field: "end", type: "temporal", format: "%d %b %H:%M" }, { field: "length" }],
        },
      },
      {
        data: { values: endings }, mark: { type: "point", filled: true, size: 50, stroke: ink("paper"), strokeWidth: 0.7 },
        encoding: {
          x: { field: "at", type: "temporal" }, y,
          shape: { field: "how", type: "nominal", legend: null, scale: { domain: ["killed", "failed", "finished"], range: ["cross", "triangle-down", "circle"] } },
          fill: { field: "how", type: "nominal", legend: null, scale: { domain: ["killed", "failed", "finished"], range: [ink("bad"), ink("bad"), ink("good")] } },
          tooltip: [{ field: "run" }, { field: "how" }, { field: "at", type: "temporal", format: "%d %b %H:%M" }, { field: "what" }],
        },
      },
    ],
    resolve: { scale: { color: "independent", shape: "independent" } },
  };
}

// Points: {at, done}; fan: null or {from, done, goal, low, median, p90, high}, moments in ms.
function progressSpec(points, endings, fan, goal, unit, description) {
  const y = { field: "done", type: "quantitative", title: unit };
  const layer = [
    { data: { values: points }, mark: { type: "line", color: ink("busy"), strokeWidth: 2 }, encoding: { x: { field: "at", type: "temporal", title: null, axis: momentAxis }, y } },
    {
      data: { values: endings }, mark: { type: "point", filled: true, size: 60, shape: "cross", color: ink("bad") },
      encoding: { x: { field: "at", type: "temporal" }, y, tooltip: [{ field: "how" }, { field: "what" }, { field: "at", type: "temporal", format: "%d %b %H:%M" }] },
    },
  ];
  if (fan) {
    const area = [{ at: fan.from, done: fan.done, high: fan.done }, { at: fan.low, done: fan.done + (fan.goal - fan.done) * (fan.low - fan.from) / (fan.high - fan.from), high: fan.goal }, { at: fan.high, done: fan.goal, high: fan.goal }];
    layer.push({ data: { values: area }, mark: { type: "area", color: ink("busy"), opacity: 0.2 }, encoding: { x: { field: "at", type: "temporal" }, y, y2: { field: "high" } } });
    layer.push({
      data: { values: [{ at: fan.from, done: fan.done }, { at: fan.median, done: fan.goal }] },
      mark: { type: "line", color: ink("busy"), strokeDash: [5, 4] }, encoding: { x: { field: "at", type: "temporal" }, y },
    });
  }
  if (goal !== null) {
    layer.push({ data: { values: [{ done: goal }] }, mark: { type: "rule", color: ink("good"), strokeDash: [2, 3] }, encoding: { y } });
  }
  return { description, width: "container", height: 220, autosize: { type: "fit-x", contains: "padding" }, layer };
}

// Rows: {kind, seconds, share, length}
function accountSpec(rows, kinds, description) {
  return {
    description, width: "container", height: 34, autosize: { type: "fit-x", contains: "padding" },
    data: { values: rows }, mark: { type: "bar", height: 24 },
    encoding: {
      x: { field: "seconds", type: "quantitative", stack: "normalize", title: null, axis: { format: "%", grid: false } },
      color: { field: "kind", type: "nominal", title: null, legend: null, scale: kindScale(kinds) },
      order: { field: "place", type: "quantitative" },
      tooltip: [{ field: "kind" }, { field: "length" }, { field: "share" }],
    },
  };
}

// Points: {at, value}; value may be null, a gap.
function curveSpec(points, over, name, description) {
  const few = points.length <= 40;
  return {
    description, width: "container", height: 150, autosize: { type: "fit-x", contains: "padding" },
    data: { values: points }, mark: { type: "line", color: ink("busy"), point: few, invalid: null },
    encoding: {
      x: { field: "at", type: "quantitative", title: over, scale: { zero: false, nice: false } },
      y: { field: "value", type: "quantitative", title: null, scale: { zero: false } },
      tooltip: [{ field: "at", title: over }, { field: "value", title: "value" }],
    },
  };
}

// Draws a specification into an element; again when the colors change.
const drawn = new Map();

function draw(element, makeSpec) {
  drawn.set(element, makeSpec);
  const made = vegaLite.compile({ ...makeSpec(), config: config() }).spec;
  const view = new vega.View(vega.parse(made), { renderer: "svg", container: element, hover: true });
  return view.runAsync().then(() => { element.dataset.isDrawn = "true"; });
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [element, makeSpec] of drawn) {
    if (element.isConnected) draw(element, makeSpec);
    else drawn.delete(element);
  }
});
