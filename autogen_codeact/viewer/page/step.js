// One step of a run as an element.

const LONGEST_MARKDOWN = 20_000;
const LANGUAGES = { python: "Python", python3: "Python", py: "Python", bash: "Bash", sh: "shell", shell: "shell", "": "code" };
const SVG = "image/svg+xml";
const SAVED = new Set([...IMAGE_TYPES, SVG]);
const MOST_SAVED = 8;
const SPOKEN = new Set(["task", "message", "model_call", "handoff", "block"]);

/** What a step is, in a few words. */
function kindWords(step) {
  switch (step.kind) {
    case "task": return "gave the task";
    case "message": return step.running ? "is writing" : "said";
    case "model_call": return step.running ? "asks the model" : "asked the model";
    case "block": return `${step.running ? "is running" : "ran"} ${LANGUAGES[step.language ?? ""] || step.language}`;
    case "decision": return step.retry ? "tries again" : "is done";
    case "handoff": return `handed over to ${step.target}`;
    case "resumed": return "run resumed";
    case "gap": return "unreadable part of the log";
    case "end": return "end of the run";
    default: return "event";
  }
}

/** Make the element of a step. */
function stepElement(step) {
  const id = `step-${step.number}`;
  const body = h("div.step-body");
  const article = h("article.step", {
    id, tabindex: "-1", class: `kind-${step.kind}${step.running ? " running" : ""}`, "aria-labelledby": `${id}-title`,
    "aria-posinset": step.number,
  }, stepHead(step, id), body);
  fillStep(step, body);
  article.step = step;
  return article;
}

function stepHead(step, id) {
  const speaker = step.agent || (step.kind === "task" ? "user" : "");
  const usage = step.usage;
  return h("header.step-head", null,
    h("a.number", { href: `#${id}`, "aria-label": `Link to step ${step.number}` }, String(step.number)),
    h("h2.who", { id: `${id}-title` },
      speaker ? h("span.agent", null, visible(speaker)) : null, speaker ? " " : null,
      h("span.what", null, visible(kindWords(step)))),
    stepMarks(step),
    h("span.meta", null,
      step.running ? h("span.busy-dot", { role: "img", "aria-label": "running" }) : null,
      usage ? h("span.tokens", { title: `${count(usage.prompt_tokens, "token")} read, ${count(usage.completion_tokens, "token")} written` },
        `${short(usage.prompt_tokens + usage.completion_tokens)} tok`) : null,
      step.duration_s >= 0.0005 ? h("span.seconds", null, seconds(step.duration_s)) : null,
      h("time", { datetime: step.time, title: step.time }, clock(step.time))));
}

function stepMarks(step) {
  const all = [];
  if (step.outcome && !["ok", "running"].includes(step.outcome)) {
    all.push(chip(step.outcome, step.exit_code ? ` · exit code ${step.exit_code}` : null));
  }
  if (step.state && step.state !== "kept") all.push(chip(step.state));
  else if (step.state === "kept") all.push(h("span.kept", null, "variables kept"));
  if (step.kind === "model_call" && step.error) all.push(chip("failed"));
  return h("span.marks", null, all);
}

function fillStep(step, body) {
  if (step.thought) body.append(thought(step.thought));
  if (step.kind === "block") blockStep(step, body);
  else add(body, [said(step), calls(step.calls), step.error ? failure(step.error) : null]);
  for (const note of step.notes || []) body.append(h("p.note", null, visible(note)));
}

function said(step) {
  const text = step.text || step.stop_reason;
  const [size, url] = [step.text_bytes ?? null, data.outputUrl(step.number)];
  if (!text) return null;
  return SPOKEN.has(step.kind) ? prose(text, size, url) : h("div.quiet-text", null, longText(text, { size, url }));
}

function thought(text) {
  const details = h("details.thought", null, h("summary", null, "thought"));
  details.addEventListener("toggle", () => details.childElementCount > 1 || details.append(prose(text, null, null)));
  return details;
}

// Markdown up to a size that nobody writes by hand; longer text as it is.
function prose(text, size, url) {
  if (size === null && text.length <= LONGEST_MARKDOWN) return markdown(text);
  return longText(text, { head: 40, tail: 20, size, url, name: "text" });
}

function failure(text) {
  const box = longText(text, { name: "error" });
  box.classList.add("output", "failed");
  return labelled("error", box);
}

// Images that code has written into files are shown as those that it has displayed, unless they are the same.
function savedImages(list, displays) {
  const forms = displays.flatMap((shown) => Object.values(shown.data || {}));
  const seen = new Set([...forms.map((form) => form && form.file && form.file.sha256), ...displays.map((shown) => shown.name)]);
  const saved = list.filter(({ name, file }) => file && SAVED.has(file.media_type) && !seen.has(file.sha256) && !seen.has(name));
  return saved.slice(0, MOST_SAVED).map(({ name, file }) => (file.media_type === SVG ? savedSvg(name, file)
    : display({ name, data: { [file.media_type]: { file }, "text/plain": name } })));
}

function savedSvg(name, file) {
  const box = h("figure");
  const failed = () => box.replaceChildren(h("p.muted", null, `${SVG}, ${bytes(file.size)}: ${file.note || "not stored"}`));
  data.fileText(file.sha256).then((text) => box.append(svgFrame(text, `${name}, an SVG image`) || ""), failed);
  return labelled("display", box);
}

function blockStep(step, body) {
  const displays = step.displays || [];
  add(body, [
    said(step), step.code ? code(step) : null, output(step), step.error ? failure(step.error) : null, value(step),
    displays.map(display), savedImages(step.files || [], displays), calls(step.calls), connections(step.connections), files(step.files),
    step.state === "lost" ? h("p.note", null, "The session's variables and imports were lost here.") : null,
    step.state === "restored" ? h("p.note", null, "The session was lost, and restored to what it was before this block.") : null,
  ]);
}
