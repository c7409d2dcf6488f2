// Long text, in parts: however long a text or a line is, the page stays quick.

const LONGEST_LINE = 2000;
const MORE_CHARACTERS = 100_000;

/** Cut the lines that are too long to lay out. */
function cutLines(text) {
  if (text.length <= LONGEST_LINE) return text;
  return text.split("\n").map(cutLine).join("\n");
}

function cutLine(line) {
  if (line.length <= LONGEST_LINE) return line;
  const left = line.length - LONGEST_LINE;
  return `${line.slice(0, LONGEST_LINE - 200)} [… ${left.toLocaleString("en")} characters of this line are left out …] ${line.slice(-200)}`;
}

/**
 * Show text in a fixed-width font, at first its beginning and its end.
 *
 * options: head, tail (lines shown at first), size (bytes of the whole text if this is only a part), url (of the whole text),
 * name (said to screen readers), draw (makes the nodes of a part, given its text and its first line; visible text if left out).
 */
function longText(text, { head = 24, tail = 12, size = null, url = null, name = "text", draw = visible } = {}) {
  const box = h("div.long");
  const lines = cutLines(text.slice(0, 2 * MORE_CHARACTERS)).replace(/\n$/, "").split("\n");
  const whole = text.length <= 2 * MORE_CHARACTERS;
  if (lines.length <= head + tail + 4) {
    box.append(part(lines, draw, name));
  } else {
    const hidden = lines.slice(head, lines.length - tail);
    const more = h("button.more", { type: "button" }, `Show ${count(hidden.length, "more line")}`);
    const ending = lines.length - tail;
    box.append(part(lines.slice(0, head), draw, name), more, part(lines.slice(ending), draw, `end of ${name}`, ending));
    more.addEventListener("click", () => {
      const focus = part(lines, draw, name);
      box.replaceChildren(focus, ...[...box.children].filter((child) => child.matches(".whole")));
      focus.focus({ preventScroll: true });
    });
  }
  if (!whole || size !== null) box.append(wholeText(size ?? text.length, url));
  return box;
}

function part(lines, draw, name, from = 0) {
  return h("pre", { tabindex: "0", role: "group", "aria-label": name }, draw(lines.join("\n"), from));
}

function wholeText(size, url) {
  if (!url) return h("p.whole.muted", null, `shortened, ${bytes(size)} in all`);
  return h("p.whole", null, h("a", { href: url, target: "_blank", rel: "noopener" }, `Show all (${bytes(size)})`));
}
