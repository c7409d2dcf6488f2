// Questions of a run that goes on: whether the code may call a host tool.
import { announce, h, visible } from "./dom.js";
import { prettyJson } from "./frames.js";

// A click so soon after a question has appeared was meant for something else.
const TOO_SOON_MS = 500;

/** The panel of open questions; `send(id, approve)` answers one. */
export class Questions {
  constructor(send) {
    this.send = send;
    this.open = new Map();
    this.shown = null;
    this.element = h("section.questions", { "aria-label": "Questions", hidden: true });
  }

  /** Show a question, or show it again if it has changed. */
  ask(question) {
    this.open.set(question.id, question);
    this.draw(this.shown === question.id);
  }

  /** Remove a question that was answered or withdrawn. */
  withdraw(id) {
    this.open.delete(id);
    this.draw(this.shown === id);
  }

  /** Remove all questions. */
  clear() {
    this.open.clear();
    this.draw(true);
  }

  draw(changed) {
    const [question] = this.open.values();
    const waiting = this.open.size - 1;
    if (question && question.id === this.shown && !changed) {
      this.waiting.textContent = waiting ? `${waiting} more waiting` : "";
      return;
    }
    this.element.hidden = !question;
    this.shown = question ? question.id : null;
    if (question) this.drawQuestion(question, waiting);
    else this.element.replaceChildren();
  }

  drawQuestion(question, waiting) {
    const since = afterPaint();
    const say = h("p.problem", { role: "alert" });
    const decide = (approve) => async (event) => {
      if (event.timeStamp - since.time < TOO_SOON_MS) return;
      for (const button of buttons) button.disabled = true;
      try {
        await this.send(question.id, approve);
        this.withdraw(question.id);
      } catch (error) {
        say.textContent = error.message;
        for (const button of buttons) button.disabled = false;
      }
    };
    const buttons = [
      h("button.approve", { type: "button", onclick: decide(true) }, "Approve"),
      h("button.deny", { type: "button", onclick: decide(false) }, "Deny"),
    ];
    this.waiting = h("span.muted", null, waiting ? `${waiting} more waiting` : "");
    const tool = question.tool || "a host tool";
    this.element.replaceChildren(
      h("h2", null, question.agent ? [h("span.agent", null, visible(question.agent)), " asks to call "] : "May the code call ",
        h("code", null, visible(tool)), question.agent ? null : "?"),
      argumentsOf(question), say, h("p.answers", null, buttons, this.waiting));
    announce(`Question: may ${tool} be called?`);
  }
}

function argumentsOf(question) {
  const given = question.arguments ?? question.text ?? "";
  const text = typeof given === "string" ? prettyJson(given) : JSON.stringify(given, null, 2);
  return h("pre", { tabindex: "0", role: "group", "aria-label": "Arguments" }, visible(text));
}

// When it could be seen at the earliest; until then no click counts.
function afterPaint() {
  const since = { time: Infinity };
  requestAnimationFrame(() => requestAnimationFrame(() => { since.time = performance.now(); }));
  return since;
}
