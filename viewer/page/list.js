// The page with the list of runs, and the start of both pages.

const RUNS_AT_ONCE = 50;
const AGAIN_MS = 5000;
const SOON_MS = 700; // while logs are still being read
const RUN_OUTCOMES = ["running", "completed", "failed", "cancelled", "waiting", "interrupted", "unreadable"];

class ListPage {
  constructor() {
    const given = new URLSearchParams(location.search);
    this.query = { search: given.get("search") || "", outcome: given.get("outcome") || "" };
    this.selected = 0;
  }

  async open() {
    this.build();
    this.list = new PartList({
      box: this.rows, size: RUNS_AT_ONCE, height: 76, tag: "ul", load: (from, to) => this.load(from, to), failed: (error) => this.tellProblem(error),
    });
    await this.look();
    this.wait();
  }

  // Runs that go on change, and new ones appear; what somebody reads or uses stays.
  wait() {
    setTimeout(async () => {
      if (!document.hidden && scrollY <= 200 && !document.activeElement.closest(".runs")) await this.look();
      this.wait();
    }, this.indexing ? SOON_MS : AGAIN_MS);
  }

  build() {
    const outcomes = ["", ...RUN_OUTCOMES].map((name) => h("option", { value: name, selected: name === this.query.outcome }, name || "Any outcome"));
    this.search = h("input", {
      type: "search", placeholder: "Search tasks, names, agents and models", "aria-label": "Search runs", value: this.query.search,
      autocomplete: "off", oninput: (event) => this.change("search", event.target.value),
    });
    this.amount = h("p.muted.amount", { role: "status" });
    this.rows = h("div.runs", { role: "region", "aria-label": "Runs", tabindex: "-1" });
    buildPage({
      start: [h("h1", null, "Runs")],
      end: [],
      content: [h("main.list-page", { id: "content", tabindex: "-1" },
        h("search.filters", null, this.search, h("select", { "aria-label": "Outcome", onchange: (event) => this.change("outcome", event.target.value) }, outcomes)),
        this.amount, this.rows)],
      keys: [
        [["j"], "next run", () => this.go(this.selected + 1)],
        [["k"], "previous run", () => this.go(this.selected - 1)],
        [["g"], "first run", () => this.go(1)],
        [["G"], "last run", () => this.go(this.list.count)],
        [["/"], "search", () => this.search.focus()],
        [["Escape"], "leave the search", () => document.activeElement.blur()],
      ],
    });
    document.title = "Runs · codeact";
  }

  change(name, value) {
    this.query[name] = value;
    history.replaceState(null, "", `?${new URLSearchParams(Object.entries(this.query).filter(([, text]) => text))}`);
    this.selected = 0;
    this.look();
  }

  async look() {
    try {
      const answer = await data.getRuns({ ...this.query, offset: 0, limit: 1 });
      this.indexing = answer.indexing;
      const runs = count(answer.total, "run");
      this.amount.textContent = (answer.matched === answer.total ? runs : `${answer.matched.toLocaleString("en")} of ${runs}`) + (answer.indexing ? ", reading more…" : "");
      this.list.setCount(answer.matched);
      this.list.refreshAll();
    } catch (error) {
      this.tellProblem(error);
    }
  }

  async load(from, to) {
    const { runs } = await data.getRuns({ ...this.query, offset: from - 1, limit: to - from + 1 });
    return runs.map((run, index) => this.row(run, from + index));
  }

  row(run, number) {
    const unreadable = run.outcome === "unreadable";
    const who = [run.agents.join(", "), run.models.join(", ")].filter(Boolean).join(" · ");
    return h("li", { "aria-posinset": number, "aria-setsize": this.list.count }, h("a.run", { href: data.runUrl(run.id) },
      h("span.run-task", null, visible(run.task || run.name)),
      h("span.run-outcome", null, chip(run.outcome)),
      h("span.run-name", null, unreadable ? h("span.problem", null, visible(run.error || "")) : visible(who), h("span.run-id", null, visible(run.id))),
      h("span.run-facts", null, unreadable ? null : [
        h("span", { title: run.started }, when(run.started)), h("span", null, count(run.blocks, "block")),
        h("span", null, `${short(run.tokens)} tokens`), h("span", null, seconds(run.duration_s))])));
  }

  async go(number) {
    this.selected = Math.max(1, Math.min(number, this.list.count));
    const row = await this.list.show(this.selected);
    if (row) row.firstChild.focus();
  }

  tellProblem(error) {
    this.amount.textContent = plain(error.message);
  }
}
