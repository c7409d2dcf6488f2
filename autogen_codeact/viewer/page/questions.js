// Questions of a run that goes on: whether the code may call a host tool.

// A click so soon after a question has appeared was meant for something else.
const TOO_SOON_MS = 500;
// The server's answer when a question is not open any more.
const CONFLICT = 409;

/** The panel of open questions; `send(id, approve)` answers one. */
class Questions {
  constructor(send) {
    this.send = send;
    this.open = new Map();
    this.shown = null;
    this.element = h("section.questions", { "aria-label": "Questions", hidden: true });
  }

  /** Show these questions, and no others. */
  show(questions) {
    this.open = new Map(questions.map((question) => [question.id, question]));
    this.draw();
  }

  withdraw(id) {
    this.open.delete(id);
    this.draw();
  }

  draw() {
    const [question] = this.open.values();
    const waiting = this.open.size - 1;
    if (question && question.id === this.shown) {
      this.waiting.textContent = waiting ? `${waiting} more waiting` : "";
      return;
    }
    this.element.hidden = !question;
    this.shown = question ? question.id : null;
    if (question) this.drawQuestion(question, waiting);
    else this.element.replaceChildren();
  }

  drawQuestion(question, waiting) {
    const say = h("p.problem", { role: "alert" });
    const decide = (approve) => async (event) => {
      if (!(event.timeStamp - since.time >= TOO_SOON_MS)) return;
      for (const button of buttons) button.disabled = true;
      try {
        await this.send(question.id, approve);
        this.withdraw(question.id);
      } catch (error) {
        if (error.status === CONFLICT) {
          this.withdraw(question.id);
          announce(error.message);
          return;
        }
        say.textContent = error.message;
        for (const button of buttons) button.disabled = false;
      }
    };
    const buttons = [
      h("button.approve", { type: "button", onclick: decide(true) }, "Approve"),
      h("button.deny", { type: "button", onclick: decide(false) }, "Deny"),
    ];
    const since = afterPaint(buttons);
    this.waiting = h("span.muted", null, waiting ? `${waiting} more waiting` : "");
    const code = question.kind === "code";
    const whose = h("span", null, question.agent ? [h("b", null, visible(question.agent)), code ? " asks to run this code" : " asks to call "]
      : code ? "May this code run?" : "The code asks to call ");
    this.element.replaceChildren(
      h("h2", null, whose, code ? null : h("code", null, visible(question.tool || "a host tool"))),
      ...questionContent(question), say, h("p.answers", null, buttons, this.waiting));
    announce(code ? "Question: may this code run?" : `Question: may ${question.tool} be called?`);
  }
}

// Everything that is approved is shown; what is long scrolls.
function questionContent(question) {
  const all = [];
  if (question.text && question.kind !== "code") all.push(h("p.muted", null, visible(question.text)));
  // As it came: a number that JavaScript reads is another one from 2 ** 53 on.
  const text = question.kind === "code" ? question.text : question.arguments || "";
  if (text) all.push(h("pre", { tabindex: "0", role: "group", "aria-label": question.kind === "code" ? "Code" : "Arguments" }, visible(text)));
  return all;
}

// When it could be seen at the earliest; until then, and for a moment after, no click counts.
function afterPaint(buttons) {
  const since = { time: Infinity };
  for (const button of buttons) button.setAttribute("aria-disabled", "true");
  requestAnimationFrame(() => requestAnimationFrame(() => {
    since.time = performance.now();
    setTimeout(() => {
      for (const button of buttons) button.removeAttribute("aria-disabled");
    }, TOO_SOON_MS + 20);
  }));
  return since;
}
