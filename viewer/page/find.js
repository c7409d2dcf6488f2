// Search in a run: the steps that contain a text, and marks on the text where it is on the screen.
import { announce, count, h } from "./dom.js";
import { iconButton } from "./shell.js";

const MOST_MARKS = 1000;
const WAIT_MS = 200;

/** `search(text)` gives the numbers of steps, `go(number)` shows one, `changed(numbers)` is told what was found. */
export class Find {
  constructor({ search, go, changed, where }) {
    Object.assign(this, { search, go, changed, where });
    this.numbers = [];
    this.at = -1;
    this.text = "";
    this.input = h("input", {
      type: "search", placeholder: "Search in this run", "aria-label": "Search in this run", autocomplete: "off", spellcheck: "false",
      oninput: () => this.soon(), onkeydown: (event) => this.key(event),
    });
    this.result = h("span.muted", { role: "status" });
    this.element = h("search.find", { hidden: true }, this.input, this.result,
      iconButton("back", "Previous result (N)", () => this.move(-1), { class: "up" }),
      iconButton("back", "Next result (n)", () => this.move(1), { class: "downwards" }),
      iconButton("close", "Close search (Esc)", () => this.close()));
  }

  open() {
    this.element.hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    if (this.element.hidden) return false;
    this.input.blur();
    this.element.hidden = true;
    this.input.value = "";
    this.found("", []);
    return true;
  }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      if (this.input.value.trim() === this.text) this.move(event.shiftKey ? -1 : 1);
      else this.start();
    }
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), WAIT_MS);
  }

  async start() {
    clearTimeout(this.timer);
    const text = this.input.value.trim();
    if (text === this.text) return;
    this.text = text;
    if (!text) return this.found("", []);
    this.result.textContent = "searching…";
    try {
      const numbers = await this.search(text);
      if (this.text === text) this.found(text, numbers);
    } catch (error) {
      if (this.text === text) this.result.textContent = error.message;
    }
  }

  found(text, numbers) {
    this.text = text;
    this.numbers = numbers;
    this.at = -1;
    this.changed(numbers);
    this.tell();
    if (numbers.length) this.move(1);
    this.mark();
  }

  move(by) {
    if (!this.numbers.length) return;
    this.at = (this.at + by + this.numbers.length) % this.numbers.length;
    this.go(this.numbers[this.at]);
    this.tell();
    this.mark();
  }

  tell() {
    if (!this.text) this.result.textContent = "";
    else if (!this.numbers.length) this.result.textContent = "nothing found";
    else this.result.textContent = `${this.at + 1} of ${count(this.numbers.length, "step")}`;
    if (this.text && this.numbers.length) announce(this.result.textContent);
  }

  /** Mark the text where it is on the page. */
  mark() {
    if (!CSS.highlights) return;
    CSS.highlights.delete("found");
    if (!this.text) return;
    const wanted = this.text.toLowerCase();
    const ranges = [];
    const walker = document.createTreeWalker(this.where, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && ranges.length < MOST_MARKS) {
      const content = walker.currentNode.data.toLowerCase();
      // Lower case can have another length, such as that of İ.
      if (content.length !== walker.currentNode.data.length) continue;
      for (let at = content.indexOf(wanted); at >= 0 && ranges.length < MOST_MARKS; at = content.indexOf(wanted, at + wanted.length)) {
        const range = new Range();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + wanted.length);
        ranges.push(range);
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }
}
