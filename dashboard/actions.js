// What can be changed from the page. Everything is asked about first, and needs the token.

import { byId, say } from "./dom.js";
import { ask, token } from "./feed.js";
import { rate } from "./format.js";

export class Actions {
  constructor() {
    this.allowed = false;
    this.application = "";
    this.doing = null;
    this.dialog = byId("dialog");
    byId("dialog-cancel").addEventListener("click", () => this.dialog.close());
    this.dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.confirm();
    });
  }

  shadow(wanted) {
    const text = wanted
      ? "No request is refused any more: all requests go to the servers, and the page shows what would have been refused. Under overload the servers may become slow or fail."
      : "Requests are refused again as soon as the target requires it.";
    this.open({
      title: wanted ? "Turn shadow mode on?" : "Enforce refusals?",
      text: `${text} It lasts until the next reload of the configuration.`,
      button: wanted ? "Refuse nothing" : "Enforce",
      path: "shadow",
      body: () => ({ shadow: wanted }),
    });
  }

  drain(server, wanted) {
    this.open({
      title: wanted ? `Drain ${server}?` : `Take ${server} back?`,
      text: wanted
        ? "The server finishes its requests and gets no new ones; the others carry its share. This lasts until the next reload of the configuration."
        : "The server gets requests again at once.",
      button: wanted ? "Drain" : "Take back",
      path: `servers/${encodeURIComponent(server)}`,
      body: () => ({ drain: wanted }),
    });
  }

  guarantee(name, now) {
    this.open({
      title: `Guarantee of ${name}`,
      text: `Requests up to this rate, per second, are always admitted without a test; now ${rate(now)}. A guarantee above the capacity of the servers breaks the target for all classes. This lasts until the next reload of the configuration.`,
      button: "Change",
      path: `classes/${encodeURIComponent(name)}`,
      value: now,
      body: () => ({ min_rate: Number(byId("dialog-value").value) }),
    });
  }

  /** Asks for the token alone, where even looking needs it. */
  unlock(tried, done) {
    this.open({ title: "This sentry requires its token", text: "It is in the [admin] section of the sentry's configuration.", button: "Look", done });
    if (tried) say(byId("dialog-error"), "The token is wrong.");
  }

  open(doing) {
    this.doing = doing;
    say(byId("dialog-title"), doing.title);
    say(byId("dialog-text"), doing.text);
    say(byId("dialog-confirm"), doing.button);
    say(byId("dialog-error"), "");
    byId("dialog-value-field").hidden = doing.value === undefined;
    byId("dialog-value").required = doing.value !== undefined;
    if (doing.value !== undefined) byId("dialog-value").value = doing.value;
    this.wantToken(!token.get());
    if (!this.dialog.open) this.dialog.showModal();
  }

  wantToken(wanted) {
    byId("dialog-token-field").hidden = !wanted;
    byId("dialog-token").required = wanted;
  }

  async confirm() {
    const { doing } = this;
    const given = byId("dialog-token");
    if (given.required) token.set(given.value.trim());
    if (!doing.path) {
      given.value = "";
      this.dialog.close();
      doing.done();
      return;
    }
    byId("dialog-confirm").disabled = true;
    try {
      const answer = await ask(`/api/applications/${encodeURIComponent(this.application)}/${doing.path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(doing.body()),
      });
      if (answer.ok) {
        given.value = "";
        this.dialog.close();
        return;
      }
      if (answer.status === 401) {
        token.clear();
        this.wantToken(true);
        say(byId("dialog-error"), "The token is wrong.");
      } else {
        say(byId("dialog-error"), (await answer.text()).trim());
      }
    } catch {
      say(byId("dialog-error"), "The sentry does not answer. The change may not have been made; check again.");
    } finally {
      byId("dialog-confirm").disabled = false;
    }
  }
}
