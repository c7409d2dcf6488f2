// What belongs to a block of code: the code, what it printed and showed, calls, connections and files.

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Show code, coloured if the server has found its parts. */
function code(step) {
  const spans = step.spans;
  const box = spans ? colouredCode(step.code, spans) : longText(step.code, { head: 60, tail: 20, name: "code", size: step.code_bytes ?? null });
  box.classList.add("code");
  return box;
}

function colouredCode(text, spans) {
  const lines = splitSpans(spans);
  const draw = (piece, from) => joined(lines.slice(from, from + piece.split("\n").length));
  return longText(text, { head: 60, tail: 20, name: "code", draw });
}

function splitSpans(spans) {
  const lines = [[]];
  for (const [name, text] of spans) {
    const parts = text.split("\n");
    parts.forEach((piece, index) => {
      if (index) lines.push([]);
      if (piece) lines[lines.length - 1].push([name, piece]);
    });
  }
  while (lines.length > 1 && !lines[lines.length - 1].length) lines.pop();
  return lines;
}

function joined(lines) {
  const all = document.createDocumentFragment();
  lines.forEach((line, index) => {
    if (index) all.append("\n");
    for (const [name, text] of line) {
      all.append(name ? h("span", { class: `t-${name.replace(/[^a-z0-9]/gi, "")}` }, visible(cutLines(text))) : visible(cutLines(text)));
    }
  });
  return all;
}

/** Show what a block has printed; null if it printed nothing. */
function output(step) {
  // A session prints the value of the last expression too.
  if (!step.output || (step.value && step.output.trim() === step.value.trim())) return null;
  const size = step.output_bytes ?? null;
  const box = longText(step.output, { size, url: size === null ? null : data.outputUrl(step.number), name: "output" });
  box.classList.add("output");
  if (step.outcome === "error") box.classList.add("failed");
  const dropped = step.truncated ? h("p.muted", null, `The sandbox has dropped ${bytes(step.truncated)} of output.`) : null;
  return labelled("output", box, dropped);
}

/** Show the value of a block's last expression, or what it gave as its answer. */
function value(step) {
  if (step.value === null || step.value === undefined) return null;
  // What is shown as a table or a figure needs no second form. Its own text can say more: "<Figure size 500x300 with 1 Axes>".
  const shows = ({ "text/plain": text, ...others }) => text && Object.keys(others).length && step.value.startsWith(text.replace(/>$/, ""));
  if ((step.displays || []).some((shown) => shows(shown.data || {}))) return null;
  const box = longText(step.value, { head: 12, tail: 4, name: "value" });
  box.classList.add("value");
  return labelled("value", box);
}

/** A part of a step with a small label beside it. */
function labelled(label, ...content) {
  return h("div.field", null, h("span.label", { "aria-hidden": "true" }, label), h("div.content", null, content));
}

/** A list with a label; null if there is nothing in it. */
function labelledList(label, tag, list, draw) {
  if (!list || !list.length) return null;
  return labelled(list.length === 1 ? label : `${label}s`, h(tag, null, list.map((one) => h("li", null, draw(one)))));
}

/** Show a figure, table or other display in its best form. */
function display(shown) {
  const name = shown.name || "display";
  const forms = shown.data || {};
  const text = typeof forms["text/plain"] === "string" ? forms["text/plain"] : null;
  const best = imageLink(forms, text || name) || formatted(forms, name);
  if (best) return labelled("display", h("figure", null, best));
  const type = Object.keys(forms).find((key) => key !== "text/plain");
  const reason = type ? h("p.muted", null, `${type}: can't be shown without scripts; its text:`) : null;
  return labelled("display", reason, longText(text || `(${Object.keys(forms).join(", ") || "empty"})`, { name }));
}

function imageLink(forms, alternative) {
  for (const type of IMAGE_TYPES) {
    const file = forms[type] && forms[type].file;
    if (!file) continue;
    const url = data.fileUrl(file.sha256, type);
    if (!url) return h("p.muted", null, `${type}, ${bytes(file.size)}: ${file.note || "not stored"}`);
    const image = h("img", { src: url, alt: shortName(alternative), loading: "lazy", decoding: "async" });
    image.addEventListener("error", () => image.replaceWith(h("p.muted", null, `${type}, ${bytes(file.size)}: this is not an image`)));
    return h("a.figure", { href: url, target: "_blank", rel: "noopener", "aria-label": `Open the image: ${shortName(alternative)}` }, image);
  }
  return null;
}

function shortName(text) {
  const line = text.split("\n")[0];
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}

function formatted(forms, name) {
  const text = (type) => (typeof forms[type] === "string" ? forms[type] : null);
  if (text("text/html")) {
    const frame = htmlFrame(text("text/html"), `${name}, as HTML`);
    if (frame) return frame;
  }
  if (text("image/svg+xml")) {
    const frame = svgFrame(text("image/svg+xml"), `${name}, an SVG image`);
    if (frame) return frame;
  }
  if (text("text/markdown")) return markdown(text("text/markdown").slice(0, 60_000));
  if (text("text/latex")) return longText(text("text/latex"), { name });
  return text("application/json") ? longText(prettyJson(text("application/json")), { name }) : null;
}

/** Show calls of host tools. */
function calls(list) {
  return labelledList("host call", "ul.calls", list, oneCall);
}

function oneCall(call) {
  const signature = Object.entries(call.arguments || {}).map(([key, text]) => `${key}=${text}`).join(", ");
  const state = call.outcome;
  const answer = call.error ?? call.result;
  const line = h("summary", null,
    h("span.signature", null, h("b", null, visible(call.name)), "(", visible(clip(signature, 120)), ")"),
    state === "ok" && call.result !== null ? h("span.result", null, "→ ", visible(clip(call.result, 80))) : null,
    state === "ok" ? null : chip(state),
    h("span.muted.time", null, seconds(call.duration_s)));
  const details = h("details.call", null, line);
  // Its content is made when it is opened: a block can make thousands of calls.
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const all = Object.entries(call.arguments || {}).map(([key, text]) => [h("dt", null, visible(key)), h("dd", null, longText(prettyJson(text), { name: key }))]);
    details.append(h("dl", null, all,
      answer === null || answer === undefined ? null : [h("dt", null, call.error ? "error" : "result"),
        h("dd", null, longText(call.error ? answer : prettyJson(answer), { name: "result" }))]));
    for (const image of call.images || []) details.append(imageLink({ [image.media_type]: { file: image } }, `image of ${call.name}`) || "");
  });
  return details;
}

function clip(text, limit) {
  const line = text.replace(/\s+/g, " ");
  return line.length > limit ? `${line.slice(0, limit)}…` : line;
}

/** Show connections that code has opened or tried to open. */
function connections(list) {
  return labelledList("connection", "ul.rows", list, (one) => [
    h("code", null, visible(`${one.host ?? "?"}${one.port ? `:${one.port}` : ""}`)),
    one.allowed ? h("span.muted", null, `${bytes(one.sent)} sent, ${bytes(one.received)} received`) : chip("refused"),
    one.reason ? h("span.muted", null, visible(one.reason)) : null]);
}

/** Show files that a block has added or changed, with their differences. */
function files(list) {
  return labelledList("file", "ul.rows", list, oneFile);
}

function oneFile(file) {
  const stored = file.file && file.file.sha256;
  const type = (file.file && file.file.media_type) || "";
  const url = stored ? data.fileUrl(stored, type) : null;
  const saved = IMAGE_TYPES.includes(type) ? null : file.download;
  const link = (words) => h("a", { href: url, target: "_blank", rel: "noopener", download: saved }, words);
  const head = [
    h("span.change", { class: file.change }, file.change),
    url && !file.diff ? link(visible(file.name)) : h("code", null, visible(file.name)),
    h("span.muted", null, bytes(file.size), file.note ? `, ${file.note}` : null),
  ];
  if (!file.diff) return h("div.file", null, head);
  const [more, less] = [sum(file.diff, "+"), sum(file.diff, "-")];
  const details = h("details.file", null, h("summary", null, head, h("span.counts", null,
    h("span.plus", null, `+${more}`, h("span.sr", null, " lines added")), " ",
    h("span.minus", null, `−${less}`, h("span.sr", null, " lines removed")))));
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const box = longText(file.diff, { head: 60, tail: 20, name: `changes of ${file.name}`, draw: diffLines });
    box.classList.add("diff");
    details.append(box);
    if (url) details.append(h("p.whole", null, link(saved ? "Download the file" : "Open the file")));
  });
  return details;
}

function sum(diff, sign) {
  return diff.split("\n").filter((line) => line.startsWith(sign) && !line.startsWith(sign.repeat(3))).length;
}

function diffLines(text) {
  const all = document.createDocumentFragment();
  for (const line of text.split("\n")) {
    const kind = line.startsWith("@@") || /^(\+\+\+|---)/.test(line) ? "place" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "same";
    all.append(h(`span.line.${kind}`, null, visible(line || " ")), "\n");
  }
  return all;
}
