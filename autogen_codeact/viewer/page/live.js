// A run that goes on: what is new, and staying at the end of the list.

const NEAR_END = 60; // pixels
const MOVED_MS = 1000; // how long after a person's movement a scroll is theirs
const SCROLLING_KEYS = new Set(["ArrowUp", "PageUp", "Home", " "]);
const AGAIN_AFTER_MS = 1000; // after the connection was lost

/** Tells the page of a run what is new, and keeps the end of its list on the screen for who is there. */
class Live {
  constructor(page) {
    this.page = page;
    this.atEnd = false;
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

  /** Show what is new until the run has ended. */
  async listen() {
    const { page } = this;
    for (;;) {
      try {
        const { header, summaries, questions } = await data.getChanges(page.header.revision, [...page.questions.open.keys()]);
        this.setLost(false);
        this.showNews(header, summaries);
        page.questions.show(questions);
        if (!header.live && header.indexed && !summaries.length && !questions.length) break;
      } catch {
        this.setLost(true);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS));
      }
    }
    page.questions.show([]);
    this.drawPill();
    if (page.header.outcome === "waiting") page.tellProblem(new Error(`The answer is kept: \`codeact resume ${page.header.id}\` goes on with the run.`));
    announce(`The run has ended: ${page.header.outcome}`);
  }

  showNews(header, summaries) {
    const { page } = this;
    const before = page.steps.count;
    page.setHeader(header);
    for (const { number } of summaries) if (number <= before) page.refresh(number);
    const last = summaries.at(-1);
    if (!last || (last.number <= before && last.running)) return;
    announce(`Step ${last.number}: ${last.title || last.kind}${last.outcome && last.outcome !== "ok" ? `, ${last.outcome}` : ""}`);
  }

  setLost(lost) {
    // A question that is still open then comes again with the connection.
    if (lost) this.page.questions.show([]);
    document.body.classList.toggle("lost", lost);
    this.drawPill();
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
