// The page with the list of runs.
import { announce, chip, count, h, plain, seconds, short, visible, when } from "./dom.js";
import { getRuns, runUrl } from "./data.js";
import { buildPage } from "./shell.js";
import { VirtualList } from "./virtual.js";

const PART = 50;
const ROW = 76;
const WAIT_MS = 150;
const AGAIN_MS = 5000;
const SOON_MS = 700; // while logs are still being read
const SORTS = [["time", "Started"], ["steps", "Blocks"], ["tokens", "Tokens"], ["seconds", "Time"]];
const OUTCOMES = ["running", "completed", "failed", "cancelled", "interrupted", "unreadable"];

/** Show the list of runs. */
export async function openList() {
  await new ListPage().open();
}

class ListPage {
  constructor() {
    const given = new URLSearchParams(location.search);
    this.query = {
      search: given.get("search") || "", outcome: given.get("outcome") || "", agent: given.get("agent") || "",
      model: given.get("model") || "", sort: given.get("sort") || "-time",
    };
    this.runs = new Map();
    this.asked = new Set();
    this.selected = -1;
    this.version = 0;
  }

  async open() {
    this.build();
    this.list = new VirtualList({
      box: this.rows, guess: () => ROW, render: (index) => this.row(index), shown: () => this.need(), chosen: () => this.selected,
      top: () => document.querySelector("header.bar").getBoundingClientRect().bottom,
    });
    await this.load();
    this.wait();
  }

  build() {
    const change = (name) => (event) => this.change(name, event.target.value);
    this.search = h("input", {
      type: "search", placeholder: "Search tasks and names", "aria-label": "Search runs", value: this.query.search, autocomplete: "off",
      oninput: (event) => this.changeSoon("search", event.target.value),
    });
    this.selects = {
      outcome: h("select", { "aria-label": "Outcome", onchange: change("outcome") }),
      agent: h("select", { "aria-label": "Agent", onchange: change("agent") }),
      model: h("select", { "aria-label": "Model", onchange: change("model") }),
    };
    fillSelect(this.selects.outcome, "Any outcome", OUTCOMES, this.query.outcome);
    fillSelect(this.selects.agent, "Any agent", [], this.query.agent);
    fillSelect(this.selects.model, "Any model", [], this.query.model);
    this.sorts = h("div.sorts", { role: "group", "aria-label": "Sort by" });
    this.amount = h("p.muted.amount", { role: "status" });
    this.rows = h("ul.runs", { "aria-label": "Runs", tabindex: "-1" });
    this.drawSorts();
    buildPage({
      start: [h("h1", null, "Runs")],
      end: [],
      content: [h("main.list-page", { id: "content", tabindex: "-1" },
        h("search.filters", null, this.search, this.selects.outcome, this.selects.agent, this.selects.model),
        h("div.list-head", null, this.amount, this.sorts), this.rows)],
      keys: [
        [["j"], "next run", () => this.select(this.selected + 1)],
        [["k"], "previous run", () => this.select(this.selected - 1)],
        [["g"], "first run", () => this.select(0)],
        [["G"], "last run", () => this.select(this.list.count - 1)],
        [["o", "Enter"], "open the run", () => this.openSelected()],
        [["/"], "search", () => this.search.focus()],
        [["Escape"], "leave the search", () => document.activeElement.blur()],
      ],
    });
    document.title = "Runs · codeact";
  }

  drawSorts() {
    const now = this.query.sort.replace("-", "");
    const down = this.query.sort.startsWith("-");
    this.sorts.replaceChildren(...SORTS.map(([key, words]) => h("button.quiet", {
      type: "button", "aria-pressed": String(key === now),
      onclick: () => {
        this.change("sort", key === now && down ? key : `-${key}`);
        this.drawSorts();
        [...this.sorts.children][SORTS.findIndex(([other]) => other === key)].focus();
      },
    }, words, key === now ? h("span", { "aria-label": down ? "descending" : "ascending", role: "img" }, down ? " ↓" : " ↑") : null)));
  }

  changeSoon(name, value) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change(name, value), WAIT_MS);
  }

  change(name, value) {
    this.query[name] = value;
    const kept = Object.entries(this.query).filter(([key, text]) => text && !(key === "sort" && text === "-time"));
    history.replaceState(null, "", `?${new URLSearchParams(kept)}`);
    this.selected = -1;
    this.load();
  }

  async load(quiet = false) {
    const version = ++this.version;
    try {
      const answer = await getRuns({ ...this.query, offset: 0, limit: PART });
      if (version !== this.version) return;
      this.runs.clear();
      this.asked.clear();
      this.take(0, answer);
      this.list.refreshAll();
      if (!quiet) announce(this.amount.textContent);
    } catch (error) {
      this.amount.textContent = plain(error.message);
    }
  }

  take(offset, answer) {
    answer.runs.forEach((run, index) => this.runs.set(offset + index, run));
    fillSelect(this.selects.agent, "Any agent", answer.agents, this.query.agent);
    fillSelect(this.selects.model, "Any model", answer.models, this.query.model);
    const matched = answer.matched ?? answer.total;
    this.amount.textContent = matched === answer.total ? count(answer.total, "run") : `${matched.toLocaleString("en")} of ${count(answer.total, "run")}`;
    if (answer.indexing) this.amount.textContent += ", reading more…";
    this.indexing = answer.indexing;
    this.rows.classList.toggle("empty", !matched);
    this.list.setCount(matched);
  }

  need() {
    const [first, last] = this.list.range;
    for (let part = Math.floor(first / PART); part <= Math.floor(last / PART); part++) {
      if (last >= first && !this.runs.has(part * PART) && !this.asked.has(part)) this.getPart(part);
    }
  }

  async getPart(part) {
    this.asked.add(part);
    const version = this.version;
    try {
      const answer = await getRuns({ ...this.query, offset: part * PART, limit: PART });
      if (version !== this.version) return;
      this.take(part * PART, answer);
      for (let index = part * PART; index < (part + 1) * PART; index++) this.list.refresh(index);
    } catch (error) {
      this.amount.textContent = plain(error.message);
    }
  }

  wait() {
    setTimeout(() => {
      this.again();
      this.wait();
    }, this.indexing ? SOON_MS : AGAIN_MS);
  }

  // Runs that go on change, and new ones appear.
  again() {
    const running = this.indexing || [...this.runs.values()].some((run) => run.outcome === "running");
    if (document.hidden || (!running && scrollY > 200)) return;
    if (document.activeElement && document.activeElement.closest(".runs")) return;
    if (this.list.range && this.list.range[1] < PART) this.load(true);
  }

  row(index) {
    const run = this.runs.get(index);
    const row = h("li", { "aria-posinset": index + 1, "aria-setsize": this.list.count, class: index === this.selected ? "selected" : "" });
    if (!run) {
      row.append(h("span.run.placeholder", null, "…"));
      return row;
    }
    const names = (list) => list.map((one) => (typeof one === "string" ? one : one.name)).join(", ");
    const models = run.models || run.agents.map((agent) => agent.model).filter(Boolean);
    const tokens = run.tokens ?? run.prompt_tokens + run.completion_tokens;
    row.append(h("a.run", { href: runUrl(run.id) },
      h("span.run-task", null, visible(run.task || run.name)),
      h("span.run-outcome", null, chip(run.outcome)),
      h("span.run-name", null, run.outcome === "unreadable" ? h("span.problem", null, visible(run.error || "")) : visible([names(run.agents), names(models)].filter(Boolean).join(" · ")), h("span.run-id", null, visible(run.id))),
      h("span.run-facts", null,
        run.outcome === "unreadable" ? null : [
          h("span", { title: run.started }, when(run.started)), h("span", null, count(run.blocks, "block")),
          h("span", null, `${short(tokens)} tokens`), h("span", null, seconds(run.duration_s))])));
    return row;
  }

  select(index) {
    if (!this.list.count) return;
    const before = this.list.elements.get(this.selected);
    if (before) before.classList.remove("selected");
    this.selected = Math.max(0, Math.min(index, this.list.count - 1));
    const box = this.rows.getBoundingClientRect();
    const top = box.top + this.list.offset(this.selected);
    if (top < this.list.top() + 8 || top + ROW > innerHeight - 8) this.list.scrollTo(this.selected, Math.max(12, innerHeight / 2 - ROW));
    const row = this.list.elements.get(this.selected);
    if (!row) return;
    row.classList.add("selected");
    const link = row.querySelector("a");
    if (link) link.focus({ preventScroll: true });
  }

  openSelected() {
    const run = this.runs.get(this.selected);
    if (run) location.assign(runUrl(run.id));
  }
}

function fillSelect(select, any, names, chosen) {
  const all = chosen && !names.includes(chosen) ? [...names, chosen] : names;
  const key = all.join("\n");
  if (select.dataset.names === key && select.options.length) return;
  select.dataset.names = key;
  select.replaceChildren(h("option", { value: "" }, any),
    ...all.map((name) => {
      const option = h("option", null, name);
      option.value = name;
      return option;
    }));
  select.value = chosen;
}
