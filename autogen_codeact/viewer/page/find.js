// Search in a run: the steps that contain a text, and marks on the text where it is on the screen.

const MOST_MARKS = 1000;
const WAIT_MS = 200;

/** `go(number)` shows a step, `changed(numbers)` is told what was found, `where` has the text to mark. */
class Find {
  constructor({ go, changed, where }) {
    Object.assign(this, { go, changed, where });
    this.numbers = [];
    this.at = -1;
    this.text = "";
    this.input = h("input", {
      type: "search", placeholder: "Search in this run", "aria-label": "Search in this run", autocomplete: "off", spellcheck: "false",
      oninput: () => this.soon(), onkeydown: (event) => this.key(event),
    });
    this.result = h("span.muted", { role: "status" });
    this.element = h("search.find", { hidden: true }, this.input, this.result,
      quietButton("↑", "Previous result (N)", () => this.move(-1)), quietButton("↓", "Next result (n)", () => this.move(1)),
      quietButton("✕", "Close search (Escape)", () => this.close()));
  }

  open() {
    this.element.hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    this.input.blur();
    this.element.hidden = true;
    this.input.value = "";
    this.found("", []);
  }

  key(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (this.input.value.trim() === this.text) this.move(event.shiftKey ? -1 : 1);
    else this.start();
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
    if (!text) {
      this.found("", []);
      return;
    }
    this.result.textContent = "searching…";
    try {
      const numbers = await data.findSteps(text);
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
    this.result.textContent = text && !numbers.length ? "nothing found" : "";
    this.move(1);
    this.mark();
  }

  move(by) {
    if (!this.numbers.length) return;
    this.at = (this.at + by + this.numbers.length) % this.numbers.length;
    this.result.textContent = `${this.at + 1} of ${count(this.numbers.length, "step")}`;
    this.go(this.numbers[this.at]);
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
      for (let at = content.indexOf(wanted); at >= 0; at = content.indexOf(wanted, at + wanted.length)) {
        const range = new Range();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + wanted.length);
        ranges.push(range);
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }
}
