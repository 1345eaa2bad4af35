// What is known of one application: its latest state, and its history in columns as the sentry sends them.

/** Points that a chart is drawn from at most: more are narrower than the screen's own. */
const POINTS = 600;

export class Store {
  constructor(name, kept) {
    this.name = name;
    this.kept = kept;
    this.state = null;
    this.loaded = false;
    this.loading = false;
    this.pending = [];
    this.forget();
  }

  forget() {
    this.at = [];
    this.span = [];
    this.columns = { target: [], shadow: [], in_flight: [], waiting: [] };
    this.rejected = {};
    this.controller = {};
    this.classes = [];
  }

  get last() {
    return this.at.length ? this.at[this.at.length - 1] : 0;
  }

  /** Takes in the whole history, or what was missed since the last second known. */
  load(history) {
    const names = history.classes.map((c) => c.name);
    if (this.classes.length && names.join("\n") !== this.classes.map((c) => c.name).join("\n")) this.forget();
    this.append(history);
    this.loaded = true;
    const pending = this.pending;
    this.pending = [];
    pending.forEach((latest) => this.add(latest));
  }

  /** Takes in a second that just ended. When the classes have changed, the history must be loaded again. */
  add(latest) {
    if (!this.loaded) {
      if (this.loading) this.pending.push(latest);
      return;
    }
    if (!latest.at.length) return;
    const names = latest.classes.map((c) => c.name).join("\n");
    if (this.classes.length && names !== this.classes.map((c) => c.name).join("\n")) {
      this.loaded = false;
      this.forget();
      return;
    }
    this.append(latest);
  }

  append(more) {
    const skip = more.at.findIndex((at) => at > this.last);
    if (skip < 0) return;
    const before = this.at.length;
    this.at.push(...more.at.slice(skip));
    this.span.push(...more.span.slice(skip));
    for (const key of Object.keys(this.columns)) this.columns[key].push(...more[key].slice(skip));
    extend(this.rejected, more.rejected, before, this.at.length, skip, 0);
    extend(this.controller, more.controller, before, this.at.length, skip, null);
    more.classes.forEach((from, index) => {
      const to = (this.classes[index] ??= { name: from.name });
      for (const key of Object.keys(from)) if (key !== "name") (to[key] ??= []).push(...from[key].slice(skip));
    });
    if (this.at.length > this.kept + 300) this.trim(this.at.length - this.kept);
  }

  trim(n) {
    const all = [this.at, this.span, ...Object.values(this.columns), ...Object.values(this.rejected)];
    all.push(...Object.values(this.controller));
    for (const c of this.classes) all.push(...Object.values(c).filter(Array.isArray));
    all.forEach((column) => column.splice(0, n));
  }

  /** The last `seconds`, to draw and to sum. */
  window(seconds) {
    const from = this.at.findIndex((at) => at > this.last - seconds);
    return new Window(this, from < 0 ? this.at.length : from);
  }
}

/** A part of the history, from an index to the end. */
class Window {
  constructor(store, from) {
    this.store = store;
    this.from = from;
    this.length = store.at.length - from;
    this.step = Math.max(1, Math.ceil(this.length / POINTS));
    this.seconds = sum(store.span, from);
  }

  /** The x axis: seconds since 1970. */
  times(beganAt) {
    return this.buckets((from, to) => beganAt + this.store.at[to - 1]);
  }

  /** A column of counts, as a rate. */
  rate(column) {
    return this.buckets((from, to) => sum(column, from, to) / sum(this.store.span, from, to));
  }

  /** A column of measurements: the highest of each point, so that no peak is smoothed away. */
  peak(column) {
    return this.buckets((from, to) => {
      let highest = null;
      for (let i = from; i < to; i++) if (column[i] !== null && (highest === null || column[i] > highest)) highest = column[i];
      return highest;
    });
  }

  /** The sum of a column of counts. */
  total(column) {
    return sum(column, this.from);
  }

  buckets(value) {
    const { at } = this.store;
    const out = [];
    // Cut by the clock and not by position, so that old points stay as they are when new ones come.
    for (let from = this.from, i = from + 1; i <= at.length; i++) {
      if (i < at.length && Math.floor(at[i] / this.step) === Math.floor(at[from] / this.step)) continue;
      out.push(value(from, i));
      from = i;
    }
    return out;
  }
}

/** The columns of all classes added up, second by second. */
export function across(classes, key) {
  if (!classes.length) return [];
  return classes[0][key].map((_, i) => classes.reduce((total, c) => total + c[key][i], 0));
}

/** The mean rate of the last `seconds` samples. */
export function recent(store, column, samples = 5) {
  const from = Math.max(0, store.at.length - samples);
  const time = sum(store.span, from);
  return time ? sum(column, from) / time : 0;
}

function extend(into, more, before, after, skip, empty) {
  for (const name of new Set([...Object.keys(into), ...Object.keys(more)])) {
    const column = (into[name] ??= new Array(before).fill(empty));
    if (more[name]) column.push(...more[name].slice(skip));
    while (column.length < after) column.push(empty);
  }
}

function sum(column, from = 0, to = column.length) {
  let total = 0;
  for (let i = from; i < to; i++) total += column[i];
  return total;
}
