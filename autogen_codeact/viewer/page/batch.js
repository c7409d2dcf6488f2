// The page of a batch: its tasks with verdict, expected and given answer, and errors.

const VERDICTS = ["passed", "not passed", "completed", "stopped", "waiting", "failed", "invalid"];

class BatchPage extends ListPage {
  title = "Batch";
  one = "task";
  filter = "Verdict";
  outcomes = VERDICTS;
  placeholder = "Search tasks, answers and errors";
  height = 150;

  get(query) {
    return data.getBatch(query);
  }

  drawHead({ name, counts }) {
    this.heading.replaceChildren("Batch ", visible(name));
    document.title = `Batch ${plain(name)} · codeact`;
    const found = VERDICTS.filter((verdict) => counts[verdict]).map((verdict) => `${counts[verdict].toLocaleString("en")} ${verdict}`);
    this.amount.append(found.length ? `: ${found.join(", ")}` : "");
  }

  advice() {
    return ["The batch has no results yet. They appear here when its first task has ended."];
  }

  async load(from, to) {
    const { rows } = await this.get({ ...this.query, offset: from - 1, limit: to - from + 1 });
    return rows.map((row, index) => this.row(row, from + index));
  }

  row(row, number) {
    const title = visible(row.task.split("\n").find((line) => line.trim()) || row.id);
    const facts = [row.id, row.repeat > 1 ? `repetition ${row.repeat}` : "", count(row.blocks, "block"), `${short(row.tokens)} tokens`,
      seconds(row.duration_s), row.attempts > 1 ? count(row.attempts, "attempt") : "", row.node];
    return h("li.task-row", { "aria-posinset": number, "aria-setsize": this.list.count },
      h("h2", null, row.run ? h("a", { href: data.runUrl(row.run) }, title) : h("span", { tabindex: "0" }, title), chip(row.verdict)),
      h("ul.facts", null, facts.filter(Boolean).map((fact) => h("li", null, visible(fact)))),
      field("expected", row.expected), field("answer", row.answer, row.answer_bytes), row.checks.map((why) => field("check", why)), field("error", row.error));
  }
}

function field(label, text, size = null) {
  if (text === null || text === undefined) return null;
  const box = longText(text, { head: 4, tail: 2, name: label || "answer", size });
  return label ? labelled(label, box) : box;
}
