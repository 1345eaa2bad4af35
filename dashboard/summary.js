// The top of the page: what an operator must know in five seconds, in one sentence and six figures.

import { byId, mark, say } from "./dom.js";
import { count, percent, rate, time } from "./format.js";
import { across, recent } from "./store.js";

/** What counts as refusing: less is noise in the words, though never in the figures. */
const REFUSING = 0.001;

/** The figures of the last five seconds, from which the words and the tiles are made. */
export function figures(store) {
  const { state, classes } = store;
  const of = (key) => recent(store, across(classes, key));
  const offered = of("offered");
  const rejected = of("rejected");
  const reasons = Object.entries(store.rejected)
    .map(([name, column]) => ({ name, rate: recent(store, column) }))
    .filter((reason) => reason.rate > 0)
    .sort((a, b) => b.rate - a.rate);
  // Only classes that were answered in the last half minute: older percentiles say nothing about now.
  const answered = state.classes.filter((c, i) => classes[i] && recent(store, classes[i].completed, 30) > 0 && c.statistic !== null);
  const worst = answered.reduce((a, b) => (a && a.statistic >= b.statistic ? a : b), null);
  return {
    offered,
    rejected,
    // In shadow mode everything is admitted: what counts is what would have been.
    admitted: state.shadow ? Math.max(0, offered - rejected) : of("admitted"),
    goodput: of("in_target"),
    completed: of("completed"),
    failed: of("failed"),
    reasons,
    worst,
    refusedShare: offered > 0 ? rejected / offered : 0,
    up: state.servers.filter((s) => s.status === "up").length,
  };
}

/** Shows the sentence, its reason, and the tiles. */
export function showSummary(store, hello) {
  const { state } = store;
  const f = figures(store);
  const verdict = judge(state, f);
  mark(byId("verdict"), "state", verdict.state);
  say(byId("mark"), { calm: "✓", holding: "▲", broken: "✖", shadow: "◐", unknown: "…" }[verdict.state]);
  say(byId("headline"), verdict.text);
  say(byId("why"), why(state, f, hello));
  // Read out when the state changes, not with every figure in it.
  say(byId("announce"), { calm: "All is well", holding: "Overload", broken: "Trouble", shadow: "Shadow mode" }[verdict.state]);
  document.title = `${verdict.short} – ${state.application} – tidegate`;
  tiles(state, f);
}

function judge(state, f) {
  const refused = percent(f.refusedShare);
  const missed = f.worst && f.worst.statistic > state.target;
  const slow = () => `${named(state)} of ${f.worst.name} is ${time(f.worst.statistic)}, the target is ${time(state.target)}`;
  if (f.up === 0) return { state: "broken", short: "✖ no server", text: "No server is up." };
  if (state.draining) return { state: "holding", short: "draining", text: "The sentry is shutting down: it finishes the requests in flight." };
  const refusing = f.refusedShare > REFUSING;
  if (state.shadow) {
    const would = refusing ? `tidegate would refuse ${refused}` : "tidegate would refuse nothing either";
    const late = missed ? ` The target is missed: ${slow()}.` : "";
    return { state: missed ? "broken" : "shadow", short: "◐ shadow", text: `Shadow mode: nothing is refused; ${would}.${late}` };
  }
  if (missed) return { state: "broken", short: "✖ target missed", text: `The target is missed: ${slow()}.` };
  if (refusing) return { state: "holding", short: `▲ ${refused} refused`, text: `Overload: ${refused} is refused, and what is admitted keeps the target.` };
  if (f.offered === 0) return { state: "calm", short: "✓ idle", text: "Idle: no requests arrive." };
  return { state: "calm", short: "✓ calm", text: "All is well: everything is admitted, and the target holds." };
}

function why(state, f, hello) {
  const parts = [];
  if (f.reasons.length) {
    const [first] = f.reasons;
    const verb = state.shadow ? "Would be refused" : "Refused";
    parts.push(`${verb} because ${hello.reasons[first.name] ?? "of a reason that is unknown to this page"} (${first.name}, ${percent(first.rate / f.rejected)} of refusals).`);
  }
  const down = state.servers.filter((s) => s.status === "down").length;
  if (down) parts.push(`${count(down)} of ${count(state.servers.length)} servers ${down === 1 ? "is" : "are"} down.`);
  if (f.failed > 0) parts.push(`Servers fail ${rate(f.failed)}.`);
  return parts.join(" ");
}

function tiles(state, f) {
  say(byId("offered"), rate(f.offered));
  say(byId("offered-note"), "what users send");
  say(byId("admitted-label"), state.shadow ? "Would admit" : "Admitted");
  say(byId("admitted"), rate(f.admitted));
  say(byId("admitted-note"), f.offered > 0 ? `${percent(Math.min(1, f.admitted / f.offered))} of it` : "");
  say(byId("refused-label"), state.shadow ? "Would refuse" : "Refused");
  say(byId("refused"), rate(f.rejected));
  say(byId("refused-note"), f.rejected > 0 ? `${percent(f.refusedShare)}: ${f.reasons[0]?.name ?? ""}` : "nothing");
  say(byId("goodput"), rate(f.goodput));
  say(byId("goodput-note"), f.completed > 0 ? `${percent(Math.min(1, f.goodput / f.completed))} of answers` : "no answers");
  const tile = byId("response").closest(".tile");
  say(byId("response-label"), `${named(state)}, worst class`);
  say(byId("response"), f.worst ? time(f.worst.statistic) : "–");
  const holds = !f.worst || f.worst.statistic <= state.target;
  mark(tile, "holds", String(holds));
  say(byId("response-note"), `${holds ? "✓ within" : "✖ over"} ${time(state.target)}${f.worst ? ` (${f.worst.name})` : ""}`);
  say(byId("in-flight"), count(state.in_flight));
  say(byId("in-flight-note"), [`${count(state.waiting)} waiting`, ...besides(state)].join(", "));
}

/** Of those in flight, the ones nobody waits for; and what is open and not in flight. */
function besides(state) {
  const open = (state.streams ?? 0) + (state.tunnels ?? 0);
  return [[state.ghosts ?? 0, "abandoned"], [open, "open"]].filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`);
}

function named({ statistic, bounds }) {
  const name = statistic === "mean" ? "Mean" : statistic;
  return bounds === "first-byte" ? `${name} to first byte` : name;
}
