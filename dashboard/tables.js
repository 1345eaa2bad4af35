// The tables: classes, reasons, servers, and what the controller shows of itself.

import { spark } from "./charts.js";
import { Keyed, bar, byId, make, mark, say } from "./dom.js";
import { count, duration, number, percent, rate, time } from "./format.js";
import { across, recent } from "./store.js";

/** More rows than this help nobody: the most loaded are shown. */
const SERVERS = 100;

/** The heaviest tenants that are shown. */
const TENANTS = 10;

/** Requests in flight per processor at which a server's bar is full. */
const FULL_BAR = 20;

/** Seconds that the small lines beside the controller's numbers show. */
const SPARK_SECONDS = 120;

const LABELS = {
  limit: "Limit on requests in flight",
  threshold_class: "Threshold is at class",
  threshold_share: "Share of that class admitted",
  full_probability: "Probability that the system is full",
  processors: "Effective processors, learned or given",
  mean_cost_s: "Mean cost of a request",
  calibration: "SLA statistic over predicted mean",
  stolen: "Requests sent to data servers",
  stealing_limit: "In flight at a data server, at most",
  data_tier_load: "Load of the data tier, share of its peak",
  data_cores_lent: "Cores that each data server lends",
};

export class Tables {
  constructor(actions) {
    this.classes = new Keyed(byId("classes").tBodies[0], () => classRow(actions));
    this.total = totalRow();
    byId("classes").tFoot.append(this.total.element);
    this.reasons = new Keyed(byId("reasons").tBodies[0], reasonRow);
    this.tenants = new Keyed(byId("tenants").tBodies[0], tenantRow);
    this.servers = new Keyed(byId("servers").tBodies[0], () => serverRow(actions));
    this.controller = new Keyed(byId("controller").tBodies[0], numberRow);
  }

  show(store, seconds, hello) {
    this.showClasses(store, seconds);
    this.showReasons(store, seconds, hello);
    this.showTenants(store.state);
    this.showServers(store.state);
    this.showController(store);
  }

  showClasses(store, seconds) {
    const { state } = store;
    const now = (i, key) => (store.classes[i] ? recent(store, store.classes[i][key]) : 0);
    const rows = state.classes.map((c, i) => ({
      ...c,
      rank: i + 1,
      shadow: state.shadow,
      target: state.target,
      bound: Number(state.statistic.slice(1)) || 0,
      now: { offered: now(i, "offered"), admitted: now(i, "admitted"), rejected: now(i, "rejected"), goodput: now(i, "in_target") },
    }));
    this.classes.show(rows, (row) => row.name);
    const window = store.window(seconds);
    const total = (key) => window.total(across(store.classes, key));
    this.total.update({
      seconds: window.seconds,
      shadow: state.shadow,
      offered: total("offered"),
      admitted: total("admitted"),
      rejected: total("rejected"),
      goodput: total("in_target"),
    });
  }

  showReasons(store, seconds, hello) {
    const window = store.window(seconds);
    const rows = Object.entries(store.rejected)
      .map(([name, column]) => ({ name, total: window.total(column), now: recent(store, column), words: hello.reasons[name] ?? "" }))
      .filter((row) => row.total > 0)
      .sort((a, b) => b.total - a.total);
    const all = rows.reduce((total, row) => total + row.total, 0);
    byId("reasons").hidden = rows.length === 0;
    byId("no-reasons").hidden = rows.length > 0;
    this.reasons.show(rows.map((row) => ({ ...row, share: row.total / all })), (row) => row.name);
  }

  showTenants(state) {
    const shown = state.tenants.slice(0, TENANTS);
    byId("tenants").hidden = shown.length === 0;
    byId("no-tenants").hidden = shown.length > 0;
    const above = state.classes.filter((c) => c.tenant_share !== null).map((c) => c.name);
    say(byId("tenants-note"), above.length > 0 ? `shared fairly in ${above.join(", ")}` : "");
    this.tenants.show(shown, (tenant) => tenant.tenant);
  }

  showServers(state) {
    const busiest = [...state.servers].sort((a, b) => load(b) - load(a)).slice(0, SERVERS);
    // In the order of the configuration: rows that jump cannot be read.
    const shown = state.servers.filter((server) => state.servers.length <= SERVERS || busiest.includes(server));
    const up = state.servers.filter((server) => server.status === "up").length;
    const more = state.servers.length > SERVERS ? `, the ${SERVERS} most loaded` : "";
    say(byId("servers-note"), `${count(up)} of ${count(state.servers.length)} up${more}`);
    this.servers.show(shown, (server) => server.name);
  }

  showController(store) {
    const { state } = store;
    const { policy, active, ...rest } = state.policy;
    say(byId("policy"), `${policy}${active && active !== policy ? `, now ${active}` : ""}; dispatch ${state.dispatch}`);
    const window = store.window(SPARK_SECONDS);
    const rows = Object.entries(store.controller).map(([name, column]) => {
      const values = column.slice(window.from);
      return { name: label(name), value: value(name, values[values.length - 1], state), values };
    });
    // What a newer engine shows and this page does not know is shown as it is.
    const known = ["limit", "threshold", "delays", "full", "more"];
    for (const [name, given] of Object.entries(rest)) {
      if (!known.includes(name) && given !== null && typeof given !== "object") rows.push({ name: label(name), value: String(given), values: [] });
    }
    rows.push({ name: "URLs with a learned cost", value: count(state.urls), values: [] });
    if (state.stale_tickets) rows.push({ name: "Stale tickets: a fault of the program, please report it", value: count(state.stale_tickets), values: [] });
    this.controller.show(rows.filter((row) => row.value !== "–"), (row) => row.name);
  }
}

/** The foot of the page. */
export function showProcess(state) {
  const failures = state.reload_failures ? `; ${count(state.reload_failures)} reloads refused` : "";
  const dropped = state.access_log_dropped ? `; ${count(state.access_log_dropped)} access log lines dropped` : "";
  const busy = `the process uses ${number(state.cpus_busy)} processors`;
  say(byId("process"), `tidegate ${state.version}, up ${duration(state.uptime)}; ${busy}${failures}${dropped}`);
}

function classRow(actions) {
  const share = bar("admitted");
  const cells = Array.from({ length: 9 }, () => make("td", { className: "number" }));
  const guarantee = make("td", { className: "number" });
  const value = make("span");
  const change = make("button", { type: "button", className: "act small" }, "change");
  guarantee.append(value, " ", change);
  const name = make("th", { scope: "row" });
  const element = make("tr", {}, name, make("td", {}, share.element), ...cells, guarantee);
  let shown = null;
  change.addEventListener("click", () => actions.guarantee(shown.name, shown.min_rate));
  return {
    element,
    update(row) {
      shown = row;
      const { offered, rejected, goodput } = row.now;
      const admitted = row.shadow ? Math.max(0, offered - rejected) : row.now.admitted;
      say(name, `${row.rank}. ${row.name}`);
      const of = offered > 0 ? Math.min(1, admitted / offered) : 0;
      share.set(of, offered > 0 ? percent(of) : "idle");
      const figures = [rate(offered), rate(admitted), rate(rejected), rate(goodput), time(row.p50), time(row.p95), time(row.p99)];
      [...figures, count(row.in_flight), count(row.waiting)].forEach((text, i) => say(cells[i], text));
      // The target bounds one statistic: what lies above that one may be over.
      [50, 95, 99].forEach((percentile, i) => mark(cells[4 + i], "over", String(percentile <= row.bound && row[`p${percentile}`] > row.target)));
      say(value, row.min_rate ? rate(row.min_rate) : "none");
      change.disabled = !actions.allowed;
      change.setAttribute("aria-label", `Change the guarantee of ${row.name}`);
    },
  };
}

/** Sums over the time shown: what can be held against metrics and logs. */
function totalRow() {
  const name = make("th", { scope: "row" });
  const share = bar("admitted");
  const ids = ["total-offered", "total-admitted", "total-refused", "total-goodput"];
  const cells = ids.map((id) => make("td", { className: "number", id }));
  const element = make("tr", {}, name, make("td", {}, share.element), ...cells, make("td", { colSpan: 6 }));
  return {
    element,
    update({ seconds, shadow, offered, admitted, rejected, goodput }) {
      const entered = shadow ? Math.max(0, offered - rejected) : admitted;
      say(name, `Requests in ${duration(Math.round(seconds))}`);
      const of = offered > 0 ? Math.min(1, entered / offered) : 0;
      share.set(of, offered > 0 ? percent(of) : "none");
      [offered, entered, rejected, goodput].forEach((value, i) => say(cells[i], count(value)));
    },
  };
}

function reasonRow() {
  const name = make("b");
  const words = make("small");
  const share = bar("refused");
  const [now, total] = [make("td", { className: "number" }), make("td", { className: "number" })];
  return {
    element: make("tr", {}, make("th", { scope: "row" }, name, " ", words), make("td", {}, share.element), now, total),
    update(row) {
      say(name, row.name);
      say(words, row.words);
      share.set(row.share, percent(row.share));
      say(now, rate(row.now));
      say(total, count(row.total));
    },
  };
}

/** A tenant that is known by a secret has no name but a part of its key. */
function tenantRow() {
  const name = make("th", { scope: "row" });
  const share = bar("offered");
  const cells = Array.from({ length: 2 }, () => make("td", { className: "number" }));
  return {
    element: make("tr", {}, name, make("td", {}, share.element), ...cells),
    update(tenant) {
      say(name, tenant.name ?? tenant.network ?? `#${tenant.tenant.slice(-8)}`);
      share.set(tenant.share, percent(tenant.share));
      [tenant.offered, tenant.refused].forEach((value, i) => say(cells[i], count(value)));
    },
  };
}

function serverRow(actions) {
  const [name, address, report] = [make("span"), make("small"), make("small")];
  const state = make("span", { className: "state" });
  const [inFlight, processors] = [make("td", { className: "number" }), make("td", { className: "number" })];
  const share = bar("load");
  const drain = make("button", { type: "button", className: "act small" });
  let shown = null;
  drain.addEventListener("click", () => actions.drain(shown.name, shown.status !== "draining"));
  return {
    element: make(
      "tr",
      {},
      make("th", { scope: "row" }, name, " ", address),
      make("td", {}, state, " ", report),
      inFlight,
      make("td", {}, share.element),
      processors,
      make("td", {}, drain),
    ),
    update(server) {
      shown = server;
      say(name, server.name);
      say(address, server.address && server.address !== server.name ? server.address : "");
      say(report, reported(server.nucleus));
      const words = { up: "✓ up", down: "✖ down", draining: "▽ draining" }[server.status] ?? server.status;
      const role = server.role === "data" ? ` (data, ${server.can_lend ? "lends" : "cannot lend"})` : "";
      say(state, words + role);
      mark(state, "state", server.status);
      say(inFlight, count(server.in_flight));
      share.set(load(server) / FULL_BAR, number(load(server)));
      say(processors, `${number(server.processors)} ${server.learned ? "learned" : "given"}`);
      say(drain, server.status === "draining" ? "take back" : "drain");
      drain.disabled = !actions.allowed || server.status === "down";
      drain.setAttribute("aria-label", `${drain.textContent} ${server.name}`);
    },
  };
}

function numberRow() {
  const name = make("th", { scope: "row" });
  const value = make("td", { className: "number" });
  const canvas = make("canvas", { className: "spark", "aria-hidden": "true" });
  return {
    element: make("tr", {}, name, make("td", {}, canvas), value),
    update(row) {
      say(name, row.name);
      say(value, row.value);
      canvas.hidden = row.values.length === 0;
      if (row.values.length) spark(canvas, row.values);
    },
  };
}

/** What a server's nucleus does, where it has one. */
function reported(nucleus) {
  if (!nucleus || nucleus.state === "never") return "";
  if (nucleus.state === "left") return "its nucleus stopped";
  if (nucleus.state === "not-listening") return "nothing listens there";
  return `${nucleus.state === "silent" ? "silent, last report" : "reported"} ${duration(nucleus.age ?? 0)} ago`;
}

/** Requests in flight per processor. */
function load(server) {
  return server.processors > 0 ? server.in_flight / server.processors : 0;
}

function label(name) {
  if (LABELS[name]) return LABELS[name];
  const words = name.replace(/_(s|seconds)$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function value(name, given, state) {
  if (given === null || given === undefined) return "–";
  if (name === "threshold_class") return state.classes[given - 1]?.name ?? number(given);
  if (/_(s|seconds)$/.test(name)) return time(given);
  if (/_(share|probability|fraction)$/.test(name) || name === "data_tier_load") return percent(given);
  if (name.startsWith("rate")) return rate(given);
  return number(given);
}
