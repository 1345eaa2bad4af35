// The dashboard: what comes from the sentry goes into stores, and the selected application's store onto the page.

import { Actions } from "./actions.js";
import { Charts, pressPercentile, readPalette } from "./charts.js";
import { Keyed, byId, make, mark, say } from "./dom.js";
import { Events } from "./events.js";
import { STALE_MS, ask, follow, token } from "./feed.js";
import { duration } from "./format.js";
import { Store } from "./store.js";
import { showSummary } from "./summary.js";
import { Tables, showProcess } from "./tables.js";

const THEMES = ["auto", "light", "dark"];

const stores = new Map();
const events = new Events();
const actions = new Actions();
const tables = new Tables(actions);
const tabs = new Keyed(byId("applications"), tab);
let hello = null;
let selected = decodeURIComponent(location.hash.slice(1));
let heard = 0;
let link = "connecting";

setTheme(localStorage.getItem("tidegate-theme") ?? "auto");
const charts = new Charts(byId);
const feed = follow({ message, state });
setInterval(showLink, 500);

byId("window").addEventListener("change", show);
byId("details").addEventListener("change", show);
byId("shadow").addEventListener("click", () => actions.shadow(!stores.get(selected).state.shadow));
byId("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
  recolour();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
const percentiles = [...document.querySelectorAll("[data-percentile]")];
percentiles.forEach((button) =>
  button.addEventListener("click", () => {
    charts.percentile = button.dataset.percentile;
    pressPercentile(percentiles, charts.percentile);
    charts.times.forget();
    show();
  }),
);

function message(name, data) {
  if (name === "hello") greet(data);
  else if (name === "second") second(data);
  else events.add(data);
}

function greet(data) {
  // Another run of the process counts from nothing.
  if (hello && hello.began_at !== data.began_at) {
    stores.clear();
    events.clear();
  }
  hello = data;
  actions.allowed = data.changes;
  say(byId("changes-note"), data.changes ? "" : "This page is read-only: to allow changes, set token or token_file in [admin].");
  // What was missed since the connection broke is fetched again.
  for (const store of stores.values()) store.loaded = false;
}

function second(data) {
  heard = performance.now();
  for (const application of data.applications) {
    const name = application.application;
    if (!stores.has(name)) stores.set(name, new Store(name, hello.kept));
    const store = stores.get(name);
    store.state = application;
    store.add(application.latest);
  }
  for (const name of stores.keys()) if (!data.applications.some((a) => a.application === name)) stores.delete(name);
  if (!stores.has(selected)) selected = data.applications[0]?.application ?? "";
  showProcess(data);
  load(stores.get(selected));
  show();
}

async function load(store) {
  if (!store || store.loaded || store.loading) return;
  store.loading = true;
  try {
    const answer = await ask(`/api/history?application=${encodeURIComponent(store.name)}&since=${store.last}`);
    if (answer.ok) store.load(await answer.json());
  } catch {
    // The next second tries again.
  } finally {
    store.loading = false;
  }
  show();
}

function show() {
  const store = stores.get(selected);
  if (!store?.state || !hello) return;
  actions.application = selected;
  tabs.show([...stores.keys()], (name) => name);
  const seconds = Number(byId("window").value);
  const shadow = byId("shadow");
  shadow.hidden = false;
  shadow.disabled = !actions.allowed;
  say(shadow, store.state.shadow ? "Enforce refusals…" : "Shadow mode…");
  events.show(selected, hello.began_at, hello.reasons);
  if (!store.loaded || document.hidden) return;
  showSummary(store, hello);
  tables.show(store, seconds, hello);
  charts.show(store, seconds, hello.began_at);
  mark(document.body, "ready", "true");
}

function tab() {
  const button = make("button", { type: "button" });
  let name = "";
  button.addEventListener("click", () => {
    selected = name;
    location.hash = encodeURIComponent(name);
    load(stores.get(selected));
    show();
  });
  return {
    element: button,
    update(item) {
      name = item;
      say(button, item);
      button.setAttribute("aria-pressed", String(item === selected));
    },
  };
}

function state(now) {
  link = now;
  if (now === "locked") {
    const tried = token.get() !== null;
    token.clear();
    actions.unlock(tried, () => feed.retry());
  }
  showLink();
}

/** Says how old the data is, whatever the connection claims. */
function showLink() {
  const age = performance.now() - heard;
  const stale = !heard || age > STALE_MS;
  const shown = link === "live" && !stale ? "live" : heard ? "stale" : link;
  mark(document.body, "link", shown);
  const old = `data is ${duration(age / 1000)} old`;
  const words = { live: "live", lost: "no connection", locked: "locked", connecting: "connecting", stale: old };
  say(byId("link-text"), words[shown] ?? shown);
  const notice = byId("notice");
  notice.hidden = shown !== "stale" && shown !== "locked";
  if (shown === "locked") say(notice, "This sentry requires its token. Reload the page to enter it.");
  if (shown === "stale") say(notice, "These figures are old: the sentry does not answer. The page continues automatically when it does.");
}

function setTheme(theme) {
  const known = THEMES.includes(theme) ? theme : "auto";
  document.documentElement.dataset.theme = known;
  localStorage.setItem("tidegate-theme", known);
  say(byId("theme"), `Theme: ${known}`);
  readPalette();
}

function recolour() {
  readPalette();
  charts.forget();
  show();
}

document.addEventListener("visibilitychange", show);
