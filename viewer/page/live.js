// A run that goes on: what is new, and staying at the end of the list.

const NEAR_END = 60; // pixels
const MOVED_MS = 1000; // how long after a person's movement a scroll is theirs
const SCROLLING_KEYS = new Set(["ArrowUp", "PageUp", "Home", " "]);
const TOGETHER_MS = 50; // steps that come so soon after each other are shown together

/** Tells the page of a run what is new, and keeps the end of its list on the screen for who is there. */
class Live {
  constructor(page) {
    this.page = page;
    this.atEnd = false;
    this.news = new Map();
    this.timer = null;
    this.moved = -Infinity;
    this.pill = h("button.pill", { type: "button", hidden: true, onclick: () => this.follow() }, "");
    this.stopButton = h("button.stop", { type: "button", hidden: true, onclick: () => this.stop() }, "Stop");
  }

  watchScrolling() {
    addEventListener("scroll", () => this.scrolled(), { passive: true });
    for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(name, (event) => this.touched(event), { passive: true });
    // Content that was loaded or has grown moves what it follows.
    new ResizeObserver(() => this.stay()).observe(this.page.feed);
  }

  listen() {
    this.close = data.subscribe({
      header: (header) => this.page.setHeader(header),
      step: ({ summary }) => this.add(summary),
      question: (question) => (question.withdrawn ? this.page.questions.withdraw(question.id) : this.page.questions.ask(question)),
      end: () => this.ended(),
      state: (state) => this.connection(state),
    }, this.page.header.revision);
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
    const before = page.steps.count;
    page.setCount(Math.max(before, ...news.map(({ number }) => number)));
    const { number, title, kind, outcome, running } = news.at(-1);
    if (number > before || !running) announce(`Step ${number}: ${title || kind}${outcome && outcome !== "ok" ? `, ${outcome}` : ""}`);
    for (const { number: changed } of news) if (changed <= before) page.refresh(changed);
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
    try {
      this.page.setHeader(await data.getHeader());
      this.page.steps.refreshAll();
      this.page.outline.refreshAll();
    } catch (error) {
      this.page.tellProblem(error);
    }
  }

  async ended() {
    const { page } = this;
    if (this.close) this.close();
    this.showNews();
    page.questions.clear();
    try {
      page.setHeader(await data.getHeader());
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
    try {
      await data.stop();
    } catch (error) {
      this.stopButton.disabled = false;
      this.page.tellProblem(error);
    }
  }

  // Staying at the end, or at the step that was gone to

  stay() {
    if (this.atEnd) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    else this.page.keepSelected();
  }

  scrolled() {
    const room = document.documentElement.scrollHeight - scrollY - innerHeight;
    const byPerson = performance.now() - this.moved < MOVED_MS;
    if (room < NEAR_END) this.atEnd = this.atEnd || (byPerson && this.page.header.live);
    else if (byPerson) this.atEnd = false;
    this.drawPill();
    this.page.selectShown();
  }

  // Only a person who scrolls leaves the end; the page itself scrolls too when heights change.
  touched(event) {
    if (event.type === "keydown" && !SCROLLING_KEYS.has(event.key)) return;
    this.page.kept = this.page.wanted = 0;
    this.moved = performance.now();
  }

  /** Go to the end, and stay there while the list grows or its heights change, until the person scrolls. */
  follow() {
    this.atEnd = true;
    this.moved = -Infinity;
    this.page.kept = 0;
    this.stay();
    this.drawPill();
  }

  drawPill() {
    const lost = document.body.classList.contains("lost");
    this.pill.hidden = !(lost || (this.page.header.live && !this.atEnd));
    this.pill.textContent = lost ? "Connection lost, trying again…" : "Follow ↓";
  }
}
