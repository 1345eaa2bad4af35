// The connection to the sentry: one stream of server-sent events that comes back by itself. It is read with fetch and not
// with EventSource, which cannot send a token.

const PAUSES = [500, 1000, 2000, 4000];
const KEY = "tidegate-token";

/** Without a message for so long, data is stale. The stream brings one each second. */
export const STALE_MS = 3500;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

/** Asks the admin API, with the token where there is one. */
export function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  return fetch(path, { ...options, headers });
}

/**
 * Follows `/api/stream` for ever. `on.message(name, data)` gets what comes; `on.state(state)` is "live", "lost" or
 * "locked" (a token is needed; it goes on when `retry` is called).
 */
export function follow(on) {
  let last = "";
  let heard = 0;
  let pause = 0;
  let wake = () => {};

  const run = async () => {
    for (;;) {
      const cut = new AbortController();
      // A connection that brings nothing is dead, whatever TCP thinks.
      const watch = setInterval(() => {
        if (heard && performance.now() - heard > 3 * STALE_MS) cut.abort();
      }, 1000);
      heard = performance.now();
      const locked = await once(cut.signal).catch(() => false);
      clearInterval(watch);
      on.state(locked ? "locked" : "lost");
      const wait = PAUSES[Math.min(pause++, PAUSES.length - 1)];
      await new Promise((resolve) => {
        wake = resolve;
        if (!locked) setTimeout(resolve, wait);
      });
    }
  };

  const once = async (signal) => {
    const headers = { accept: "text/event-stream" };
    if (last) headers["last-event-id"] = last;
    const answer = await ask("/api/stream", { headers, signal, cache: "no-store" });
    if (answer.status === 401) return true;
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    on.state("live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return false;
      heard = performance.now();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      blocks.forEach(dispatch);
    }
  };

  const dispatch = (block) => {
    const fields = { event: "message", data: "" };
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
    }
    if (fields.id !== undefined) last = fields.id;
    if (!fields.data) return;
    pause = 0;
    on.message(fields.event, JSON.parse(fields.data));
  };

  run();
  return { retry: () => wake() };
}
