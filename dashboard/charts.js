// The charts: uPlot with our colours. A colour always comes with a dash pattern or a fill of its own.

import { make } from "./dom.js";
import { rate, time } from "./format.js";
import { across } from "./store.js";

/** More classes than this get no chart of their own; the table has them all. */
const MULTIPLES = 12;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 5], [5, 2, 2, 2, 2, 2]];

let palette = {};

/** Reads the colours of the theme in force. */
export function readPalette() {
  // The style sheet gives each colour for both themes; only a computed one says which is in force.
  const probe = document.body.appendChild(make("span", { hidden: true }));
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3);
    return `#${parts.map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`;
  };
  const names = ["text", "quiet", "line", "offered", "admitted", "refused", "goodput", "target"];
  palette = Object.fromEntries(names.map((name) => [name, colour(name)]));
  palette.series = [1, 2, 3, 4, 5, 6].map((n) => colour(`series-${n}`));
  probe.remove();
}

/** The line of the n-th class or reason. */
const nth = (n) => ({ stroke: palette.series[n % palette.series.length], dash: DASHES[n % DASHES.length], width: 2 });

/** One chart; made again when what it shows has changed in kind. */
class Chart {
  constructor(parent, { height, format, label, sync }) {
    Object.assign(this, { parent, height, format, label, sync });
    this.width = 0;
    this.kind = "";
    new ResizeObserver(() => this.fit()).observe(parent);
  }

  /** `series`: [{ label, values, stroke, dash, fill, width }]. */
  show(times, series) {
    const kind = JSON.stringify(series.map(({ label, stroke, fill }) => [label, stroke, fill]));
    if (kind !== this.kind || !this.plot) this.build(series, kind);
    this.plot.setData([times, ...series.map((s) => s.values)]);
    const now = series.map((s) => `${s.label} ${this.format(lastOf(s.values))}`);
    this.parent.setAttribute("aria-label", `${this.label}, now: ${now.join(", ")}`);
  }

  build(series, kind) {
    this.plot?.destroy();
    this.kind = kind;
    this.width = this.parent.clientWidth;
    const axis = {
      stroke: palette.quiet,
      grid: { stroke: palette.line, width: 1 },
      ticks: { stroke: palette.line, width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const value = (_, v, index, at) => this.format(at === null || at === undefined ? lastOf(this.plot?.data[index]) : v);
    this.parent.setAttribute("role", "img");
    const options = {
      width: this.width || 300,
      height: this.height,
      padding: [8, 26, 0, 0],
      cursor: { drag: { x: false, y: false }, sync: { key: this.sync }, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_, __, max) => [0, (max || 1) * 1.08] } },
      axes: [
        { ...axis, space: 70, values: (_, ticks, __, ___, step) => ticks.map((tick) => clock(tick, step)) },
        { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => this.format(tick)) },
      ],
      series: [
        { value: (_, v) => (v ? new Date(v * 1000).toLocaleTimeString("en-GB") : "now") },
        ...series.map((s) => ({ width: 1.5, points: { show: false }, ...s, values: undefined, value })),
      ],
      legend: { live: true },
    };
    this.plot = new window.uPlot(options, [[], ...series.map(() => [])], this.parent);
  }

  fit() {
    const width = this.parent.clientWidth;
    if (!this.plot || !width || width === this.width) return;
    this.width = width;
    this.plot.setSize({ width, height: this.height });
  }

  /** For a new theme: the next `show` builds it again. */
  forget() {
    this.kind = "";
  }
}

/** Every chart of the page. */
export class Charts {
  constructor(find) {
    const sync = "time";
    this.rates = new Chart(find("rates"), { height: 220, format: rate, label: "Requests per second", sync });
    this.times = new Chart(find("times"), { height: 220, format: time, label: "Response time", sync });
    this.refusals = new Chart(find("refusals"), { height: 160, format: rate, label: "Refusals by reason", sync });
    this.load = new Chart(find("load"), { height: 220, format: (v) => (v === null ? "–" : Math.round(v).toString()), label: "Requests in the system", sync });
    this.byClass = find("by-class");
    this.multiples = new Map();
    this.percentile = "p95";
  }

  forget() {
    const all = [this.rates, this.times, this.refusals, this.load, ...[...this.multiples.values()].map((m) => m.chart)];
    all.forEach((chart) => chart.forget());
  }

  show(store, seconds, beganAt) {
    const w = store.window(seconds);
    if (!w.length) return;
    const times = w.times(beganAt);
    this.rates.show(times, flows(w, (key) => across(store.classes, key), store.state.shadow));
    const target = { label: "target", values: w.peak(store.columns.target), stroke: palette.target, dash: [6, 6], width: 2 };
    const of = store.classes.slice(0, MULTIPLES).map((c, n) => ({ label: c.name, values: w.peak(c[this.percentile]), ...nth(n) }));
    this.times.show(times, [target, ...of]);
    const reasons = Object.entries(store.rejected).filter(([, column]) => w.total(column) > 0);
    this.refusals.parent.hidden = reasons.length === 0;
    if (reasons.length) {
      this.refusals.show(times, reasons.map(([name, column], n) => ({ label: name, values: w.rate(column), ...nth(n) })));
    }
    this.load.show(times, [
      { label: "in flight", values: w.peak(store.columns.in_flight), stroke: palette.admitted, fill: `${palette.admitted}33` },
      { label: "waiting", values: w.peak(store.columns.waiting), stroke: palette.series[1], dash: [8, 4], width: 2 },
    ]);
    this.showMultiples(store, w, times);
  }

  showMultiples(store, w, times) {
    const shown = store.classes.slice(0, MULTIPLES);
    const names = shown.map((c) => c.name);
    for (const [name, part] of this.multiples) {
      if (!names.includes(name)) {
        part.element.remove();
        this.multiples.delete(name);
      }
    }
    for (const c of shown) {
      if (!this.multiples.has(c.name)) {
        const place = make("div", { className: "chart" });
        const element = make("figure", {}, make("figcaption", {}, c.name), place);
        this.byClass.append(element);
        const label = `Requests per second of ${c.name}`;
        this.multiples.set(c.name, { element, chart: new Chart(place, { height: 150, format: rate, label, sync: "time" }) });
      }
      this.multiples.get(c.name).chart.show(times, flows(w, (key) => c[key], store.state.shadow));
    }
  }
}

/** What arrives, what gets in, what is answered in time, what is refused: the same lines everywhere. */
function flows(w, column, shadow) {
  const refused = shadow ? "would refuse" : "refused";
  return [
    { label: "admitted", values: w.rate(column("admitted")), stroke: palette.admitted, fill: `${palette.admitted}2e`, width: 2 },
    { label: "arriving", values: w.rate(column("offered")), stroke: palette.offered, dash: [3, 3], width: 2 },
    { label: refused, values: w.rate(column("rejected")), stroke: palette.refused, dash: [8, 3], width: 2 },
    { label: "in time", values: w.rate(column("in_target")), stroke: palette.goodput, width: 2 },
  ];
}

/** A small line without axes, for a number's last minutes. */
export function spark(canvas, values) {
  const known = values.filter((v) => v !== null);
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [96, 24];
  if (canvas.width !== width * scale) Object.assign(canvas, { width: width * scale, height: height * scale });
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  if (known.length < 2) return;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const y = (v) => (high === low ? height / 2 : height - 3 - ((v - low) / (high - low)) * (height - 6));
  context.beginPath();
  context.strokeStyle = palette.admitted;
  context.lineWidth = 1.5;
  let drawing = false;
  values.forEach((v, i) => {
    if (v === null) drawing = false;
    else {
      context[drawing ? "lineTo" : "moveTo"]((i / (values.length - 1)) * width, y(v));
      drawing = true;
    }
  });
  context.stroke();
}

/** Tells a heading which percentile is drawn. */
export function pressPercentile(buttons, percentile) {
  buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.percentile === percentile)));
}

/** The time of day on an axis: with seconds only where ticks are that near. */
function clock(epoch, step) {
  const parts = { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) };
  return new Date(epoch * 1000).toLocaleTimeString("en-GB", parts);
}

function lastOf(values) {
  return values && values.length ? values[values.length - 1] ?? null : null;
}
