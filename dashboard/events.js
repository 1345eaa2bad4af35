// Events in words.

import { byId, make, say } from "./dom.js";
import { clock, count, number, percent, time } from "./format.js";

const KEPT = 300;
const SHOWN = 60;

/** Events that only someone who studies the controller wants to see. */
const DETAILS = new Set(["threshold-set", "delays-set", "capacity-learned"]);

export class Events {
  constructor() {
    this.kept = [];
    this.details = byId("details");
  }

  /** Takes one in. Repetitions of the same thing are counted, not listed. */
  add(data) {
    const last = this.kept[this.kept.length - 1];
    if (last && DETAILS.has(data.event) && last.event === data.event && last.application === data.application) {
      this.kept[this.kept.length - 1] = { ...data, times: (last.times ?? 1) + 1 };
      return;
    }
    this.kept.push(data);
    if (this.kept.length > KEPT) this.kept.shift();
  }

  clear() {
    this.kept = [];
  }

  show(application, beganAt, reasons) {
    const wanted = (event) =>
      (!event.application || event.application === application) && (this.details.checked || !DETAILS.has(event.event));
    const list = byId("events");
    const events = this.kept.filter(wanted).slice(-SHOWN).reverse();
    const lines = events.map((event) => `${clock(beganAt + event.at)}\t${words(event, reasons)}${event.times ? ` (${count(event.times)} times)` : ""}`);
    if (!lines.length) lines.push("\tNothing has happened yet.");
    // One list item per line, changed in place.
    lines.forEach((line, i) => {
      const item = list.children[i] ?? list.appendChild(make("li", {}, make("time"), " ", make("span")));
      const [at, text] = line.split("\t", 2);
      say(item.children[0], at);
      say(item.children[1], text);
    });
    while (list.children.length > lines.length) list.lastElementChild.remove();
  }
}

/** One event as a sentence. */
export function words(event, reasons = {}) {
  const reason = reasons[event.reason] ?? event.reason;
  switch (event.event) {
    case "policy-switched":
      return `The policy changed from ${event.from} to ${event.to}: ${event.reason}.`;
    case "threshold-set":
      return `The threshold is at class ${event.class.name}: ${percent(event.admit)} of it passes.`;
    case "delays-set": {
      const unmet = event.unmet ? ` Class ${event.unmet.name} cannot be protected within the cap.` : "";
      return `Processing delays by class: ${event.delays.map(time).join(", ")}.${unmet}`;
    }
    case "capacity-learned":
      return `Server ${event.server} is estimated at ${number(event.to)} processors (before: ${number(event.from)}).`;
    case "target-changed":
      return `The target is now ${time(event.to)} (before: ${time(event.from)}).`;
    case "server-changed":
      return `Server ${event.server} is ${event.status}.`;
    case "refusal-began":
      return `Requests of class ${event.class.name} began to be refused, because ${reason}.`;
    case "refusal-ended":
      return `Requests of class ${event.class.name} are no longer refused; ${count(event.refused)} were.`;
    case "runaway-cancelled":
      return `A request of class ${event.class.name} at ${event.server} was ended: it had used ${time(event.used)}, and ${time(event.predicted)} was expected.`;
    case "config-reloaded":
      return `New configuration: ${event.text}.`;
    case "config-reload-failed":
      return `A new configuration was refused, the old one stays in force: ${event.text}`;
    case "changed-by-hand":
      return `Changed by hand: ${event.text}.`;
    case "draining":
      return `Shutting down: ${event.text}.`;
    default:
      return other(event);
  }
}

/** An event that this page does not know yet: its name and whatever it carries. */
function other(event) {
  const { event: name, application: _, at: __, number: ___, times: ____, ...rest } = event;
  const told = (value) => (value && typeof value === "object" ? value.name ?? JSON.stringify(value) : String(value));
  const parts = Object.entries(rest).map(([key, value]) => `${key} ${told(value)}`);
  return `${name}${parts.length ? `: ${parts.join(", ")}` : ""}.`;
}
