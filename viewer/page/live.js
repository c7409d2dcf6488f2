// A run that goes on: what is new, and staying at the end of the list.
import { announce, count, h } from "./dom.js";
import { getHeader, getSteps, stop, subscribe } from "./data.js";
import { appendOutput } from "./step.js";

const NEAR_END = 60; // pixels
const MOVED_MS = 1000; // how long after a person's movement a scroll is theirs
const SCROLLING_KEYS = new Set(["ArrowUp", "PageUp", "Home", " "]);
const TOGETHER_MS = 50; // steps that come so soon after each other are shown together
const LONGEST_OUTPUT = 200_000;

/** Tells the page of a run what is new, and keeps the end of its list on the screen for who is there. */
export class Live {
  constructor(page) {
    this.page = page;
    this.atEnd = false;
    this.unseen = 0;
    this.news = new Map();
    this.timer = null;
    this.moved = -Infinity;
    this.pill = h("button.pill", { type: "button", hidden: true, onclick: () => this.follow() }, "");
    this.stopButton = h("button.stop", { type: "button", hidden: true, onclick: () => this.stop() }, "Stop");
  }

  watchScrolling() {
    addEventListener("scroll", () => this.scrolled(), { passive: true });
    for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(name, (event) => this.touched(event), { passive: true });
  }

  listen() {
    this.close = subscribe({
      header: (header) => this.header(header),
      step: (change) => this.add(change.summary || change),
      output: ({ step, text }) => this.output(step, text),
      question: (question) => (question.withdrawn ? this.page.questions.withdraw(question.id) : this.page.questions.ask(question)),
      end: () => this.ended(),
      state: (state) => this.connection(state),
    }, this.page.header.revision);
  }

  header(header) {
    const { page } = this;
    const grown = header.steps - page.list.count;
    page.setHeader(header);
    if (grown > 0) this.grow(header.steps, grown);
  }

  grow(steps, by) {
    const { page } = this;
    page.header.steps = steps;
    page.list.setCount(steps);
    page.outline.setCount(steps);
    if (!this.atEnd) this.unseen += by;
    page.goToWanted();
    this.drawPill();
  }

  // While a long log is read, thousands of steps come at once.
  add(summary) {
    this.news.set(summary.number, summary);
    if (this.timer === null) this.timer = setTimeout(() => this.showNews(), TOGETHER_MS);
  }

  showNews() {
    const { page } = this;
    clearTimeout(this.timer);
    this.timer = null;
    const news = [...this.news.values()];
    this.news.clear();
    if (!news.length) return;
    let [first, last] = [Infinity, 0];
    for (const summary of news) {
      page.summaries.set(summary.number, summary);
      page.steps.delete(summary.number);
      first = Math.min(first, summary.number);
      last = Math.max(last, summary.number);
    }
    if (last > page.list.count) this.grow(last, last - page.list.count);
    page.outline.refresh(first - 1, last - 1);
    const { number, title, kind, outcome } = news.at(-1);
    announce(`Step ${number}: ${title || kind}${outcome && outcome !== "ok" ? `, ${outcome}` : ""}`);
    for (const { number: changed } of news) if (page.list.elements.has(changed - 1)) this.reload(changed);
  }

  async reload(number) {
    try {
      const [step] = await getSteps(number, number);
      if (!step) return;
      this.page.steps.set(number, step);
      this.page.list.refresh(number - 1);
      if (this.atEnd) this.page.list.update();
    } catch (error) {
      this.page.tellLost(error);
    }
  }

  output(number, text) {
    const { page } = this;
    if (this.news.has(number)) this.showNews();
    const step = page.steps.get(number);
    const element = page.list.elements.get(number - 1);
    if (step && step.running) step.output = `${step.output || ""}${text}`.slice(-LONGEST_OUTPUT);
    if (element && step && step.running) appendOutput(element, text);
    if (this.atEnd) page.list.update();
  }

  connection(state) {
    const lost = state === "lost";
    // Those that are still open then come again with the connection.
    if (lost) this.page.questions.clear();
    document.body.classList.toggle("lost", lost && this.page.header.live);
    if (this.wasLost && !lost) this.catchUp();
    this.wasLost = lost;
    this.drawPill();
  }

  async catchUp() {
    const { page } = this;
    try {
      page.steps.clear();
      page.summaries.clear();
      this.header(await getHeader());
      page.list.soon();
      page.outline.draw();
      for (const index of page.list.elements.keys()) this.reload(index + 1);
    } catch (error) {
      page.tellLost(error);
    }
  }

  async ended() {
    const { page } = this;
    if (this.close) this.close();
    this.showNews();
    page.questions.clear();
    try {
      this.header(await getHeader());
    } catch {
      // The server of a run ends with it; the stream has brought the last header.
    }
    page.header.live = false;
    page.goToWanted();
    this.stopButton.hidden = true;
    this.drawPill();
    announce(`The run has ended: ${page.header.outcome}`);
  }

  async stop() {
    this.stopButton.disabled = true;
    this.stopButton.textContent = "Stopping…";
    try {
      await stop();
    } catch (error) {
      this.stopButton.disabled = false;
      this.stopButton.textContent = "Stop";
      this.page.tellLost(error);
    }
  }

  // Staying at the end

  scrolled() {
    const room = document.documentElement.scrollHeight - scrollY - innerHeight;
    if (room < NEAR_END) this.atEnd = this.atEnd || this.page.header.live;
    else if (performance.now() - this.moved < MOVED_MS) this.atEnd = false;
    if (this.atEnd) this.unseen = 0;
    this.drawPill();
  }

  // Only a person who scrolls leaves the end; the page itself scrolls too when heights change.
  touched(event) {
    if (event.type === "wheel" && event.deltaY > 0) return;
    if (event.type === "keydown" && !SCROLLING_KEYS.has(event.key)) return;
    this.moved = performance.now();
    this.page.wanted = 0;
  }

  /** Go to the end, and stay there while the list grows or its heights change, until the person scrolls. */
  follow() {
    this.atEnd = true;
    this.unseen = 0;
    this.moved = -Infinity;
    this.page.list.update();
    this.drawPill();
  }

  leave() {
    this.atEnd = false;
  }

  drawPill() {
    const lost = document.body.classList.contains("lost");
    this.pill.hidden = !(lost || (this.page.header.live && !this.atEnd));
    if (lost) this.pill.textContent = "Connection lost, trying again…";
    else this.pill.textContent = this.unseen ? `${count(this.unseen, "new step")} ↓` : "Follow ↓";
  }
}
