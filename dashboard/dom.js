// The only way text gets onto the page: as text. Nothing here, and nothing elsewhere, makes markup of a string.

/** The element of an id. */
export const byId = (id) => document.getElementById(id);

/** Makes an element. Properties beginning with "aria-" or "data-" become attributes; children are nodes or text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "scope") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

/** Sets text, and touches the page only when it changed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets a data attribute only when it changed. */
export function mark(element, key, value) {
  if (element.dataset[key] !== value) element.dataset[key] = value;
}

/** A bar from 0 to 1 that says its value to those who do not see it. */
export function bar(kind) {
  const fill = make("span", { className: "fill" });
  const text = make("span", { className: "bar-text" });
  const element = make("span", { className: `bar ${kind}` }, make("span", { className: "track" }, fill), text);
  return {
    element,
    set(share, label) {
      fill.style.width = `${(Math.min(1, Math.max(0, share || 0)) * 100).toFixed(1)}%`;
      say(text, label);
    },
  };
}

/**
 * Keeps one element per item in step with a list: `create(item)` makes { element, update(item) }. Elements of items that
 * stay are kept, so that focus and selection are.
 */
export class Keyed {
  constructor(parent, create) {
    this.parent = parent;
    this.create = create;
    this.kept = new Map();
  }

  show(items, key) {
    const next = new Map();
    let after = null;
    for (const item of items) {
      const name = key(item);
      const part = this.kept.get(name) ?? this.create(item);
      part.update(item);
      const place = after ? after.nextSibling : this.parent.firstChild;
      if (part.element !== place) this.parent.insertBefore(part.element, place);
      after = part.element;
      next.set(name, part);
      this.kept.delete(name);
    }
    for (const gone of this.kept.values()) gone.element.remove();
    this.kept = next;
  }
}
