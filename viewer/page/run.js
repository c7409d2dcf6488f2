// The page of one run.
import { add, announce, chip, count, h, plain, seconds, short, SHORTEST, timingBar, visible, when } from "./dom.js";
import { answer, findSteps, getHeader, getSteps, getSummaries, listUrl } from "./data.js";
import { Find } from "./find.js";
import { Live } from "./live.js";
import { Outline } from "./outline.js";
import { Questions } from "./questions.js";
import { buildPage, iconButton } from "./shell.js";
import { kindWords, stepElement } from "./step.js";
import { VirtualList } from "./virtual.js";

const PART = 20; // steps that are asked for at once
const SUMMARIES = 200;
const MOST_KEPT = 400; // steps that are kept in memory
const LINE = 20; // pixels
const COLOURS = 6;

/** Show the run that the address names. */
export async function openRun() {
  const page = new RunPage();
  await page.open();
}

class RunPage {
  constructor() {
    this.header = null;
    this.steps = new Map();
    this.summaries = new Map();
    this.asked = new Set();
    this.folded = new Set();
    this.colours = new Map();
    this.selected = 0;
    this.wanted = 0;
    this.live = new Live(this);
  }

  async open() {
    this.build();
    try {
      // The first steps are needed whatever the header says.
      const [header] = await Promise.all([getHeader(), this.getPart(0, true).catch(() => null)]);
      this.setHeader(header);
    } catch (error) {
      this.overview.replaceChildren(h("p.problem", { role: "alert" }, visible(error.message)));
      this.feed.setAttribute("aria-busy", "false");
      return;
    }
    this.list = new VirtualList({
      box: this.feed, guess: (index) => this.guess(index), render: (index) => this.render(index),
      shown: (first, last) => this.shown(first, last), chosen: () => this.selected, top: () => this.bar.getBoundingClientRect().bottom,
      atEnd: () => this.live.atEnd,
    });
    this.list.setCount(this.header.steps);
    this.outline.setCount(this.header.steps);
    this.feed.setAttribute("aria-busy", "false");
    addEventListener("hashchange", () => this.goToHash());
    this.live.watchScrolling();
    if (!this.goToHash() && this.header.live) this.live.follow();
    // The log of an ended run may still be read.
    if (this.header.live || this.header.indexed === false) this.live.listen();
  }

  build() {
    this.title = h("h1", null, "Run");
    this.status = h("span.status", null);
    this.overview = h("section.overview", { "aria-label": "Overview" });
    this.feed = h("div.steps", { role: "feed", "aria-label": "Steps", "aria-busy": "true", tabindex: "-1" });
    this.outline = new Outline({
      summary: (index) => this.summaries.get(index + 1), need: (first, last) => this.needSummaries(first, last),
      colour: (agent) => this.colour(agent),
    });
    this.nav = h("nav.outline", { "aria-label": "All steps", id: "outline" }, this.outline.element);
    this.nav.addEventListener("click", (event) => event.target.closest("a") && this.showOutline(false));
    this.outlineButton = iconButton("list", "All steps (s)", () => this.showOutline(), {
      class: "outline-button", "aria-controls": "outline", "aria-expanded": "false",
    });
    this.find = new Find({
      search: (text) => this.search(text), go: (number) => this.go(number - 1), changed: (numbers) => this.outline.setFound(numbers), where: this.feed,
    });
    this.questions = new Questions((id, approve) => answer(id, approve));
    this.feed.addEventListener("pointerdown", (event) => this.selectAround(event.target));
    this.feed.addEventListener("focusin", (event) => this.selectAround(event.target));
    const home = listUrl();
    buildPage({
      start: [home ? h("a.quiet.home", { href: home }, "Runs") : null, this.title, this.status],
      end: [this.live.stopButton, iconButton("search", "Search (/)", () => this.find.open()), this.outlineButton],
      content: [h("div.columns", null, this.nav, h("main", { id: "content", tabindex: "-1" }, this.overview, this.feed)),
        h("div.floating", null, this.live.pill, this.questions.element)],
      keys: this.keys(home),
    });
    this.bar = document.querySelector("header.bar");
    this.bar.append(this.find.element);
  }

  keys(home) {
    return [
      [["j"], "next step", () => this.go(this.selected + 1)],
      [["k"], "previous step", () => this.go(this.selected - 1)],
      [["e"], "next step that failed", () => this.goToFailed(1)],
      [["E"], "previous step that failed", () => this.goToFailed(-1)],
      [["g"], "first step", () => this.go(0)],
      [["G"], "last step", () => this.goToEnd()],
      [["o", "Enter"], "fold or unfold the step", () => this.fold(this.selected + 1)],
      [["O"], "fold or unfold all steps", () => this.foldAll()],
      [["/"], "search in the run", () => this.find.open()],
      [["n"], "next result", () => this.find.move(1)],
      [["N"], "previous result", () => this.find.move(-1)],
      [["f"], "follow a run that goes on", () => this.header && this.header.live && this.live.follow()],
      [["s"], "all steps, on a small screen", () => this.showOutline()],
      ...(home ? [[["u"], "list of runs", () => location.assign(home)]] : []),
      [["Escape"], "close search", () => this.find.close() || this.showOutline(false)],
    ];
  }

  showOutline(open = !this.nav.classList.contains("open")) {
    if (!open && !this.nav.classList.contains("open")) return;
    this.nav.classList.toggle("open", open);
    this.outlineButton.setAttribute("aria-expanded", String(open));
    this.outline.draw();
  }

  // The header

  setHeader(header) {
    this.header = header;
    for (const agent of header.agents) this.colour(agent.name);
    document.title = `${plain(header.id || header.name)} · codeact`;
    this.title.replaceChildren(visible(header.id || header.name));
    // Its end may be in the part of the log that is still to be read.
    const unknown = header.indexed === false && header.outcome === "interrupted";
    this.status.replaceChildren(chip(unknown ? "reading" : header.outcome));
    this.live.stopButton.hidden = !(header.live && header.controls);
    this.drawOverview(header);
  }

  drawOverview(header) {
    const facts = [
      `${header.started ? when(header.started) : ""}`, seconds(header.duration_s), count(header.steps, "step"), count(header.blocks, "block"),
      count(header.model_calls, "model call"),
      header.prompt_tokens + header.completion_tokens ? `${short(header.prompt_tokens)} tokens read, ${short(header.completion_tokens)} written` : "",
      header.resumed ? `resumed ${count(header.resumed, "time")}` : "", header.gaps ? count(header.gaps, "gap") : "",
    ];
    const task = h("p.task", { title: null }, visible(header.task.length > 600 ? `${header.task.slice(0, 600)}…` : header.task));
    this.overview.replaceChildren();
    add(this.overview, [
      task,
      h("ul.facts", null, facts.filter(Boolean).map((fact) => h("li", null, fact))),
      h("ul.agents", null, header.agents.slice(0, 50).map((agent) => this.agentLine(agent))),
      timingLine(header.timing || {}),
      header.error ? h("p.problem", null, visible(header.error)) : null,
      header.indexed === false ? h("p.muted", null, "The log is still being read; the numbers grow.") : null,
    ]);
  }

  agentLine(agent) {
    const line = h("li", null, h("span.dot"), h("b", null, visible(agent.name)),
      h("span.muted", null, visible([agent.kind, agent.model].filter(Boolean).join(", "))));
    line.style.setProperty("--agent", `var(--agent-${this.colour(agent.name)})`);
    return line;
  }

  colour(agent) {
    if (!agent || agent === "user") return "none";
    if (!this.colours.has(agent)) this.colours.set(agent, this.colours.size % COLOURS);
    return this.colours.get(agent);
  }

  // The steps

  guess(index) {
    const summary = this.summaries.get(index + 1);
    if (this.folded.has(index + 1)) return 48;
    return summary && summary.height ? 56 + Math.min(summary.height, 60) * LINE : 180;
  }

  render(index) {
    const number = index + 1;
    const step = this.steps.get(number);
    const element = step ? stepElement(step, { colour: this.colour(step.agent), folded: this.folded.has(number), onFold: (which) => this.fold(which) })
      : this.placeholder(number);
    element.setAttribute("aria-setsize", this.header.steps);
    if (index === this.selected) element.classList.add("selected");
    return element;
  }

  placeholder(number) {
    const summary = this.summaries.get(number);
    const element = h("article.step.placeholder", { id: `step-${number}`, tabindex: "-1", "aria-posinset": number, "aria-busy": "true" },
      h("header.step-head", null, h("span.number", null, String(number)),
        h("h2.who", null, summary ? visible(summary.title || kindWords(summary)) : "…")));
    element.style.minHeight = `${this.guess(number - 1)}px`;
    return element;
  }

  shown(first, last) {
    if (this.selected < first || this.selected > last) this.select(this.live.atEnd ? last : first);
    this.outline.setCurrent(this.selected);
    const range = this.list.range;
    for (let part = Math.floor(range[0] / PART); part <= Math.floor(range[1] / PART); part++) this.getPart(part).catch((error) => this.tellLost(error));
    if (this.find.text) this.find.mark();
  }

  async getPart(part, initial = false) {
    const from = part * PART + 1;
    const to = initial ? PART : Math.min(from + PART - 1, this.header.steps);
    if (this.asked.has(part)) return;
    let missing = false;
    for (let number = from; number <= to; number++) missing = missing || !this.steps.has(number);
    if (!missing) return;
    this.asked.add(part);
    try {
      for (const step of await getSteps(from, to)) {
        this.steps.set(step.number, step);
        if (this.list) this.list.refresh(step.number - 1);
      }
    } finally {
      this.asked.delete(part);
    }
    this.forget(from);
    if (this.list) this.list.soon();
  }

  // Steps far from the screen are asked for again when they are needed.
  forget(near) {
    if (this.steps.size <= MOST_KEPT) return;
    const numbers = [...this.steps.keys()].sort((a, b) => Math.abs(b - near) - Math.abs(a - near));
    for (const number of numbers.slice(0, this.steps.size - MOST_KEPT)) this.steps.delete(number);
  }

  async needSummaries(first, last) {
    for (let part = Math.floor(first / SUMMARIES); part <= Math.floor(last / SUMMARIES); part++) {
      const key = `s${part}`;
      const from = part * SUMMARIES + 1;
      const to = Math.min(from + SUMMARIES - 1, this.header ? this.header.steps : from);
      if (this.asked.has(key) || to < from || (this.summaries.has(from) && this.summaries.has(to))) continue;
      this.asked.add(key);
      try {
        for (const summary of await getSummaries(from, to)) this.summaries.set(summary.number, summary);
        this.outline.refresh(from - 1, to - 1);
        this.list.guessAgain();
      } catch (error) {
        this.tellLost(error);
      } finally {
        this.asked.delete(key);
      }
    }
  }

  async search(text) {
    try {
      return await findSteps(text);
    } catch {
      // An older server searches nothing; then what is in the list of steps is searched.
      const all = await getSummaries(1, this.header.steps);
      const wanted = text.toLowerCase();
      return all.filter((one) => `${one.title} ${one.agent}`.toLowerCase().includes(wanted)).map((one) => one.number);
    }
  }

  // Moving

  select(index) {
    const before = this.list.elements.get(this.selected);
    if (before) before.classList.remove("selected");
    this.selected = index;
    const now = this.list.elements.get(index);
    if (now) now.classList.add("selected");
  }

  selectAround(target) {
    const article = target.closest("article");
    const found = article && /^step-(\d+)$/.exec(article.id);
    if (found) this.select(Number(found[1]) - 1);
  }

  /** Show a step, and put the focus on it. */
  go(index) {
    if (!this.list || !this.list.count) return;
    const target = Math.max(0, Math.min(index, this.list.count - 1));
    this.live.leave();
    this.wanted = 0;
    this.select(target);
    this.list.scrollTo(target);
    this.select(target);
    this.outline.setCurrent(target);
    const element = this.list.elements.get(target);
    const typing = document.activeElement && document.activeElement.closest("input, .find");
    if (element && !typing) element.focus({ preventScroll: true });
    try {
      history.replaceState(null, "", `#step-${target + 1}`);
    } catch {
      // Some browsers refuse this for files; the step is shown all the same.
    }
  }

  goToEnd() {
    if (!this.list || !this.list.count) return;
    this.go(this.list.count - 1);
    this.live.follow();
  }

  goToHash() {
    const found = /^#step-(\d{1,9})$/.exec(location.hash);
    if (!found) return false;
    this.wanted = Number(found[1]);
    this.goToWanted();
    return !this.wanted || !this.header.live;
  }

  // The address can name a step that is not read, or not there, yet.
  goToWanted() {
    const grows = this.header.live || this.header.indexed === false;
    if (this.wanted && (this.wanted <= this.list.count || !grows)) this.go(this.wanted - 1);
  }

  async goToFailed(by) {
    if (this.summaries.size < this.header.steps) {
      for (const one of await getSummaries(1, this.header.steps)) this.summaries.set(one.number, one);
    }
    const bad = (number) => ["error", "failed", "timeout", "oom", "crashed"].includes((this.summaries.get(number) || {}).outcome);
    for (let number = this.selected + 1 + by; number >= 1 && number <= this.header.steps; number += by) {
      if (bad(number)) return this.go(number - 1);
    }
    announce(by > 0 ? "No later step failed" : "No earlier step failed");
  }

  fold(number) {
    if (this.folded.has(number)) this.folded.delete(number);
    else this.folded.add(number);
    const element = this.list.elements.get(number - 1);
    const inside = element && element.contains(document.activeElement);
    this.list.refresh(number - 1);
    if (inside && document.activeElement.tagName === "ARTICLE") this.list.elements.get(number - 1).querySelector(".fold").focus({ preventScroll: true });
    this.list.soon();
  }

  foldAll() {
    const all = this.folded.size < this.header.steps;
    this.folded = new Set(all ? Array.from({ length: this.header.steps }, (_, index) => index + 1) : []);
    const at = this.selected;
    this.list.measured.fill(false);
    this.list.refreshAll();
    this.list.guessAgain();
    this.list.scrollTo(at);
  }

  tellLost(error) {
    announce(`Problem: ${error.message}`);
    this.status.replaceChildren(chip(this.header ? this.header.outcome : "failed"), h("span.problem", null, visible(error.message)));
  }
}

function timingLine(timing) {
  const bar = timingBar(timing, 0);
  if (!bar) return null;
  const legend = [["model", timing.model_s], ["sandbox", timing.sandbox_s], ["tools", timing.tools_s]].filter(([, value]) => value >= SHORTEST);
  return h("p.timing-line", null, bar, legend.map(([name, value]) => h("span.legend", null, h(`span.key.${name}`), `${name} ${seconds(value)}`)));
}
