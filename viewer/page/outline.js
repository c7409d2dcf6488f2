// The list of all steps beside the run: one line each, of the same height.
import { h, visible } from "./dom.js";

const ROW = 30;
const MARGIN = 10;

/** `summary(index)` is the short form of a step if it is known, `need(first, last)` gets those that are not. */
export class Outline {
  constructor({ summary, need, colour }) {
    Object.assign(this, { summary, need, colour });
    this.count = 0;
    this.current = -1;
    this.found = new Set();
    this.rows = new Map();
    this.list = h("ol.rows-list");
    this.element = h("div.outline-scroll", { tabindex: "-1" }, this.list);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  setCount(count) {
    this.count = count;
    this.list.style.height = `${count * ROW}px`;
    this.draw();
  }

  draw() {
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW) - MARGIN);
    const last = Math.min(this.count - 1, Math.ceil((top + this.element.clientHeight) / ROW) + MARGIN);
    for (const [index, row] of this.rows) {
      if (index >= first && index <= last) continue;
      row.remove();
      this.rows.delete(index);
    }
    if (!this.element.clientHeight) return;
    for (let index = first; index <= last; index++) if (!this.rows.has(index)) this.add(index);
    this.need(first, last);
  }

  add(index) {
    const row = this.row(index);
    const after = [...this.rows.keys()].filter((other) => other > index).sort((a, b) => a - b)[0];
    this.list.insertBefore(row, after === undefined ? null : this.rows.get(after));
    this.rows.set(index, row);
  }

  row(index) {
    const step = this.summary(index);
    const number = index + 1;
    const row = h("li", { "aria-posinset": number, "aria-setsize": this.count },
      h("a", {
        href: `#step-${number}`, class: `${step ? `kind-${step.kind} is-${step.outcome || "none"}` : ""}${this.found.has(number) ? " found" : ""}`,
        "aria-current": index === this.current ? "step" : null,
      }, h("span.number", null, String(number)), h("span.dot"),
      h("span.title", null, visible(step ? step.title || step.kind : "…")),
      mark(step)));
    row.style.top = `${index * ROW}px`;
    if (step) row.style.setProperty("--agent", `var(--agent-${this.colour(step.agent)})`);
    return row;
  }

  /** Draw the rows of some steps again. */
  refresh(first = 0, last = this.count - 1) {
    for (const [index, row] of this.rows) {
      if (index < first || index > last) continue;
      const focused = row.contains(document.activeElement);
      const next = this.row(index);
      row.replaceWith(next);
      this.rows.set(index, next);
      if (focused) next.firstChild.focus({ preventScroll: true });
    }
  }

  setCurrent(index) {
    if (index === this.current) return;
    const before = this.current;
    this.current = index;
    for (const changed of [before, index]) {
      const row = this.rows.get(changed);
      if (row && changed === index) row.firstChild.setAttribute("aria-current", "step");
      else if (row) row.firstChild.removeAttribute("aria-current");
    }
    const top = index * ROW;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop + ROW || top > scrollTop + clientHeight - 3 * ROW) this.element.scrollTop = top - clientHeight / 3;
  }

  setFound(numbers) {
    this.found = new Set(numbers);
    this.refresh();
  }
}

function mark(step) {
  if (!step) return null;
  if (step.running) return h("span.busy-dot", { role: "img", "aria-label": "running" });
  if (step.state === "lost" || step.state === "restored") return h("span.mark.bad", { title: `state ${step.state}` }, step.state);
  if (step.outcome && ["error", "failed", "timeout", "oom", "crashed"].includes(step.outcome)) return h("span.mark.bad", null, step.outcome);
  return step.outcome && ["denied", "cancelled", "interrupted"].includes(step.outcome) ? h("span.mark.warn", null, step.outcome) : null;
}
