// Markdown as nodes: blocks of code and headings, and in words code, bold text and links. Lists, quotes and tables stay as they were
// written. No HTML of the text is ever interpreted, and images are links, so nothing is loaded.

const LONGEST_FENCE = 300;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;

/** Render markdown. */
function markdown(text) {
  const all = h("div.prose");
  const lines = String(text).replace(/\r\n?/g, "\n").split("\n");
  let at = 0;
  while (at < lines.length) {
    const [fence, heading] = [fenceOf(lines[at]), HEADING.exec(lines[at])];
    let end = at + 1;
    if (fence) {
      end = codeFence(lines, at, fence[1], all);
    } else if (heading) {
      // The page has headings of its own above those of a text.
      all.append(h(`h${Math.min(6, heading[1].length + 2)}`, null, markdownInline(heading[2].trim())));
    } else if (lines[at].trim()) {
      end = lineWhere(lines, end, (next) => !next.trim() || fenceOf(next) || HEADING.test(next));
      all.append(h("p", null, markdownInline(lines.slice(at, end).join("\n"))));
    }
    at = end;
  }
  return all;
}

// The time of the expression grows with the square of the line's length.
function fenceOf(line) {
  return line.length <= LONGEST_FENCE ? FENCE.exec(line) : null;
}

function lineWhere(lines, at, ends) {
  while (at < lines.length && !ends(lines[at])) at++;
  return at;
}

function codeFence(lines, at, marks, parent) {
  const closing = new RegExp(`^ {0,3}${marks[0]}{${Math.min(marks.length, 100)},}\\s*$`);
  const end = lineWhere(lines, at + 1, (next) => closing.test(next));
  parent.append(h("pre.code", { tabindex: "0" }, h("code", null, visible(lines.slice(at + 1, end).join("\n")))));
  return end + 1;
}

// One pass from left to right; each alternative ends within its own limit, so the time grows with the length only.
const INLINE = /(`{1,3})(?!`)([^\n]{1,2000}?)(?<!`)\1(?!`)|(!?)\[([^\][\n]{0,500})\]\(<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\))?)>?(?:\s+"[^"\n]{0,200}")?\)|\*\*([^\n*](?:[^\n]{0,800}?[^\n*])?)\*\*|(https?:\/\/[^\s<>()"'`]{1,2000}[^\s<>()"'`.,;:!?])/g;
const LONGEST_INLINE = 10_000;

/** Render what is inside a paragraph. */
function markdownInline(text, depth = 0) {
  const all = document.createDocumentFragment();
  if (depth > 4 || text.length > LONGEST_INLINE) return add(all, visible(text));
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > end) all.append(visible(text.slice(end, found.index)));
    all.append(inlineSpan(found, depth));
    end = found.index + found[0].length;
  }
  if (end < text.length) all.append(visible(text.slice(end)));
  return all;
}

function inlineSpan(found, depth) {
  const [whole, ticks, code, image, label, target, strong, address] = found;
  if (ticks) return h("code", null, visible(code.replace(/^ (.*) $/, "$1")));
  if (target) return safeLink(target, image ? [`image: ${label || target}`] : [markdownInline(label || target, depth + 1)], whole);
  if (strong) return h("strong", null, markdownInline(strong, depth + 1));
  return safeLink(address, [address], whole);
}

function safeLink(target, label, whole) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return visible(whole);
  // What it leads to is said, because the words of a link can be anything.
  return h("a", { href: target, title: plain(target), target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}
