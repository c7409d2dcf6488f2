// The page of one run.

const STEPS_AT_ONCE = 20;
const ROWS_AT_ONCE = 200;
const MOST_STEPS_LOOKED_AT = 5000;
const COLOURS = 6;
const FAILED = ["error", "failed", "timeout", "oom", "crashed"];

class RunPage {
  constructor() {
    this.header = null;
    this.colours = new Map();
    this.found = new Set();
    this.selected = 1;
    this.wanted = 0; // the step of the address, until it is there
    this.kept = 0; // the step that stays below the bar until the person scrolls
    this.live = new Live(this);
  }

  async open() {
    this.build();
    try {
      this.setHeader(await data.getHeader());
    } catch (error) {
      this.overview.replaceChildren(h("p.problem", { role: "alert" }, visible(error.message)));
      return;
    } finally {
      this.feed.setAttribute("aria-busy", "false");
    }
    addEventListener("hashchange", () => this.goToHash());
    this.live.watchScrolling();
    if (!this.goToHash() && this.header.live) this.live.follow();
    // The log of an ended run may still be read.
    if (this.header.live || this.header.controls || this.header.indexed === false) this.live.listen();
  }

  build() {
    this.title = h("span.id", null, "Run");
    this.status = h("span.status", null);
    this.overview = h("section.overview", { "aria-label": "Overview" });
    this.feed = h("div.steps", { role: "feed", "aria-label": "Steps", "aria-busy": "true", tabindex: "-1" });
    const problems = { failed: (error) => this.tellProblem(error) };
    this.steps = new PartList({
      box: this.feed, size: STEPS_AT_ONCE, height: 180, ...problems, filled: () => this.filled(),
      load: async (from, to) => (await data.getSteps(from, to)).map((step) => this.stepElement(step)),
    });
    const rows = h("div.outline-scroll", { tabindex: "-1" });
    this.outline = new PartList({
      box: rows, root: rows, tag: "ol", size: ROWS_AT_ONCE, height: 30, ...problems, filled: () => this.markCurrent(),
      load: async (from, to) => (await data.getSummaries(from, to)).map((summary) => this.outlineRow(summary)),
    });
    this.nav = h("nav.outline", { "aria-label": "All steps" }, rows);
    this.find = new Find({ go: (number) => this.go(number), changed: (numbers) => this.setFound(numbers), where: this.feed });
    this.questions = new Questions((id, approve) => data.answer(id, approve));
    for (const name of ["pointerdown", "focusin"]) this.feed.addEventListener(name, ({ target }) => this.selectAround(target));
    this.bar = buildPage({
      start: [data.listUrl ? h("a.quiet.home", { href: data.listUrl }, data.isBatch ? "Batch" : "Runs") : null, this.title, this.status],
      end: [this.live.stopButton, quietButton("Search", "Search (/)", () => this.find.open())],
      content: [h("div.columns", null, this.nav, h("main", { id: "content", tabindex: "-1" }, this.overview, this.feed)),
        h("div.floating", null, this.live.pill, this.questions.element)],
      keys: this.keys(),
    });
    this.bar.append(this.find.element);
  }

  keys() {
    return [
      [["j"], "next step", () => this.go(this.selected + 1)],
      [["k"], "previous step", () => this.go(this.selected - 1)],
      [["e"], "next step that failed", () => this.goToFailed(1)],
      [["E"], "previous step that failed", () => this.goToFailed(-1)],
      [["g"], "first step", () => this.go(1)],
      [["G"], "last step", () => this.goToEnd()],
      [["/"], "search in the run", () => this.find.open()],
      [["n"], "next result", () => this.find.move(1)],
      [["N"], "previous result", () => this.find.move(-1)],
      [["f"], "follow a run that goes on", () => this.header && this.header.live && this.live.follow()],
      [["Escape"], "close search", () => this.find.close()],
    ];
  }

  // The header

  setHeader(header) {
    this.header = header;
    for (const agent of header.agents) this.colour(agent.name);
    document.title = `${plain(clip(header.task, 80) || header.id || header.name)} · codeact`;
    this.title.replaceChildren(visible(header.id || header.name));
    // Its end may be in the part of the log that is still to be read.
    const unknown = header.indexed === false && header.outcome === "interrupted";
    this.status.replaceChildren(chip(unknown ? "reading" : header.outcome));
    this.live.stopButton.hidden = !(header.live && header.controls);
    this.drawOverview(header);
    this.setCount(header.steps);
    this.live.drawPill();
  }

  setCount(steps) {
    this.steps.setCount(steps);
    this.outline.setCount(steps);
    this.goToWanted();
  }

  drawOverview(header) {
    const tokens = header.prompt_tokens + header.completion_tokens;
    const facts = [
      when(header.started), seconds(header.duration_s), count(header.steps, "step"), count(header.blocks, "block"), count(header.model_calls, "model call"),
      tokens ? `${short(header.prompt_tokens)} tokens read, ${short(header.completion_tokens)} written` : "",
      header.cost ? `$${header.cost.toPrecision(3)}` : "",
      header.resumed ? `resumed ${count(header.resumed, "time")}` : "", header.gaps ? count(header.gaps, "gap") : "",
    ];
    const times = Object.entries(header.timing).filter(([, value]) => value >= 0.001);
    this.overview.replaceChildren();
    add(this.overview, [
      h("h1.task", null, visible(header.task.length > 600 ? `${header.task.slice(0, 600)}…` : header.task || header.id || header.name)),
      h("ul.facts", null, facts.filter(Boolean).map((fact) => h("li", null, fact))),
      h("ul.agents", null, header.agents.slice(0, 50).map((agent) => this.agentLine(agent))),
      times.length ? h("p.muted.timing-line", null, times.map(([name, value]) => `${name.replace("_s", "")} ${seconds(value)}`).join(" · ")) : null,
      header.error ? h("p.problem", null, visible(header.error)) : null,
      header.live && !header.controls ? h("p.muted", null, "Start a run with --view to stop it from its page.") : null,
      header.indexed === false ? h("p.muted", null, "The log is still being read; the numbers grow.") : null,
    ]);
  }

  agentLine(agent) {
    const line = h("li", null, h("span.dot"), h("b", null, visible(agent.name)),
      h("span.muted", null, visible([agent.kind, agent.model].filter(Boolean).join(", "))));
    return this.coloured(line, agent.name);
  }

  colour(agent) {
    if (!agent || agent === "user") return "none";
    if (!this.colours.has(agent)) this.colours.set(agent, this.colours.size % COLOURS);
    return this.colours.get(agent);
  }

  coloured(element, agent) {
    element.style.setProperty("--agent", `var(--agent-${this.colour(agent)})`);
    return element;
  }

  // The steps

  stepElement(step) {
    const element = this.coloured(stepElement(step), step.agent);
    element.setAttribute("aria-setsize", this.header.steps);
    element.classList.toggle("selected", step.number === this.selected);
    return element;
  }

  outlineRow(summary) {
    const { number, kind, outcome, title, agent } = summary;
    const found = this.found.has(number) ? " found" : "";
    const row = h("li", { "aria-posinset": number, "aria-setsize": this.header.steps },
      h("a", { href: `#step-${number}`, class: `kind-${kind}${found}`, "aria-current": number === this.selected ? "step" : null },
        h("span.number", null, String(number)), h("span.dot"), h("span.title", null, visible(title || kind)), outlineMark(summary, outcome)));
    return this.coloured(row, agent);
  }

  refresh(number) {
    this.steps.refresh(number);
    this.outline.refresh(number);
  }

  filled() {
    this.selectShown();
    this.find.mark();
  }

  setFound(numbers) {
    this.found = new Set(numbers);
    this.outline.refreshAll();
  }

  // Moving

  select(number) {
    if (number !== this.selected) {
      const before = this.steps.item(this.selected);
      if (before) before.classList.remove("selected");
      this.selected = number;
    }
    const now = this.steps.item(number);
    if (now) now.classList.add("selected");
    this.markCurrent();
  }

  selectAround(target) {
    const article = target.closest("article");
    if (article) this.select(article.step.number);
  }

  /** Select the first step on the screen, unless the selected one is there. */
  selectShown() {
    if (this.live.atEnd) {
      this.select(this.steps.count);
      return;
    }
    const top = this.bar.getBoundingClientRect().bottom;
    const now = this.steps.item(this.selected);
    const place = now && now.getBoundingClientRect();
    if (this.kept || (place && place.bottom > top && place.top < innerHeight)) return;
    const left = this.feed.getBoundingClientRect().left;
    const [shown] = document.elementsFromPoint(left + 5, top + 20).filter((element) => element.matches("article"));
    if (shown) this.select(shown.step.number);
  }

  markCurrent() {
    const row = this.outline.item(this.selected);
    const link = row && row.firstChild;
    if (this.current && this.current !== link) this.current.removeAttribute("aria-current");
    this.current = link;
    const box = this.outline.box;
    if (!link) {
      const part = this.outline.parts[Math.floor((this.selected - 1) / ROWS_AT_ONCE)];
      if (part && !part.isNear) box.scrollTop = part.element.offsetTop;
      return;
    }
    link.setAttribute("aria-current", "step");
    const [inside, outside] = [row.getBoundingClientRect(), box.getBoundingClientRect()];
    if (inside.top < outside.top + 30 || inside.bottom > outside.bottom - 60) box.scrollTop += inside.top - outside.top - outside.height / 3;
  }

  /** Show a step, and put the focus on it. */
  async go(number) {
    if (!this.steps.count) return;
    const target = Math.max(1, Math.min(number, this.steps.count));
    this.live.atEnd = false;
    this.wanted = 0;
    this.kept = target;
    this.select(target);
    try {
      history.replaceState(null, "", `#step-${target}`);
    } catch {
      // Some browsers refuse this for files; the step is shown all the same.
    }
    const element = await this.steps.show(target);
    if (this.kept !== target || !element) return;
    this.select(target);
    this.keepSelected();
    if (!document.activeElement.closest("input, .find")) element.focus({ preventScroll: true });
    this.live.drawPill();
  }

  /** Keep the step that was gone to below the bar, whatever changes above it. */
  keepSelected() {
    const element = this.kept && this.steps.item(this.kept);
    if (element) element.scrollIntoView({ block: "start", behavior: "instant" });
  }

  async goToEnd() {
    await this.go(this.steps.count);
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
    if (this.wanted && (this.wanted <= this.steps.count || !grows)) this.go(this.wanted);
  }

  async goToFailed(by) {
    const from = by > 0 ? this.selected + 1 : Math.max(1, this.selected - MOST_STEPS_LOOKED_AT);
    const to = by > 0 ? from + MOST_STEPS_LOOKED_AT - 1 : this.selected - 1;
    const failed = to < from ? [] : (await data.getSummaries(from, to)).filter(({ outcome }) => FAILED.includes(outcome));
    if (failed.length) this.go(failed.at(by > 0 ? 0 : -1).number);
    else announce(by > 0 ? "No later step failed" : "No earlier step failed");
  }

  tellProblem(error) {
    announce(`Problem: ${error.message}`);
    this.status.replaceChildren(chip(this.header ? this.header.outcome : "failed"), h("span.problem", null, visible(error.message)));
  }
}

function outlineMark({ running, state }, outcome) {
  if (running) return h("span.busy-dot", { role: "img", "aria-label": "running" });
  if (state === "lost" || state === "restored") return h("span.mark.bad", null, WORDS[state]);
  if (FAILED.includes(outcome)) return h("span.mark.bad", null, outcome);
  return ["denied", "cancelled", "interrupted"].includes(outcome) ? h("span.mark.warn", null, outcome) : null;
}
