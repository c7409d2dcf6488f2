// The page with the list of runs. The list of a batch's tasks is made of it.

const RUNS_AT_ONCE = 50;
const AGAIN_MS = 5000;
const SOON_MS = 700; // while logs are still being read
const RUN_OUTCOMES = ["running", "completed", "failed", "cancelled", "waiting", "interrupted", "unreadable"];

class ListPage {
  title = "Runs";
  one = "run";
  filter = "Outcome";
  outcomes = RUN_OUTCOMES;
  placeholder = "Search tasks, names, agents and models";
  height = 76;

  constructor() {
    const given = new URLSearchParams(location.search);
    this.query = { search: given.get("search") || "", outcome: given.get("outcome") || "" };
    this.selected = 0;
  }

  async open() {
    this.build();
    this.list = new PartList({
      box: this.rows, size: RUNS_AT_ONCE, height: this.height, tag: "ul", load: (from, to) => this.load(from, to), failed: (error) => this.tellProblem(error),
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
    const outcomes = ["", ...this.outcomes].map((name) => h("option", { value: name, selected: name === this.query.outcome }, name || `Any ${this.filter.toLowerCase()}`));
    this.search = h("input", {
      type: "search", placeholder: this.placeholder, "aria-label": `Search ${this.one}s`, value: this.query.search,
      autocomplete: "off", oninput: (event) => this.change("search", event.target.value),
    });
    this.amount = h("p.muted.amount", { role: "status" });
    this.empty = h("p.empty", { hidden: true });
    this.rows = h("div.runs", { role: "region", "aria-label": this.title, tabindex: "-1" });
    this.heading = h("h1", null, this.title);
    buildPage({
      start: [this.heading],
      end: [],
      content: [h("main.list-page", { id: "content", tabindex: "-1" },
        h("search.filters", null, this.search, h("select", { "aria-label": this.filter, onchange: (event) => this.change("outcome", event.target.value) }, outcomes)),
        this.amount, this.empty, this.rows)],
      keys: [
        [["j"], `next ${this.one}`, () => this.go(this.selected + 1)],
        [["k"], `previous ${this.one}`, () => this.go(this.selected - 1)],
        [["g"], `first ${this.one}`, () => this.go(1)],
        [["G"], `last ${this.one}`, () => this.go(this.list.count)],
        [["/"], "search", () => this.search.focus()],
        [["Escape"], "leave the search", () => document.activeElement.blur()],
      ],
    });
    document.title = `${this.title} · codeact`;
  }

  change(name, value) {
    this.query[name] = value;
    history.replaceState(null, "", `?${new URLSearchParams(Object.entries(this.query).filter(([, text]) => text))}`);
    this.selected = 0;
    this.look();
  }

  get(query) {
    return data.getRuns(query);
  }

  async look() {
    try {
      const answer = await this.get({ ...this.query, offset: 0, limit: 1 });
      this.indexing = answer.indexing;
      const all = count(answer.total, this.one);
      this.amount.textContent = (answer.matched === answer.total ? all : `${answer.matched.toLocaleString("en")} of ${all}`) + (answer.indexing ? ", reading more…" : "");
      this.empty.hidden = answer.matched > 0 || Boolean(answer.indexing);
      this.empty.replaceChildren(...(answer.total ? [`No ${this.one} fits the search. Clear it to see all.`] : this.advice(answer)));
      this.drawHead(answer);
      this.list.setCount(answer.matched);
      this.list.refreshAll();
    } catch (error) {
      this.tellProblem(error);
    }
  }

  drawHead() {}

  advice({ folder }) {
    const save = folder && !folder.endsWith("/autogen-codeact/runs") ? ` --save ${folder}/NAME` : "";
    return ["There are no runs here yet. In a terminal, ", h("code", null, visible(`codeact run "What is 2**100?" --model MODEL${save}`)),
      " makes one."];
  }

  async load(from, to) {
    const { runs } = await this.get({ ...this.query, offset: from - 1, limit: to - from + 1 });
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
    if (row) row.querySelector("a, [tabindex]").focus();
  }

  tellProblem(error) {
    this.amount.textContent = plain(error.message);
  }
}
