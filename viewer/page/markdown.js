// Markdown as nodes. No HTML of the text is ever interpreted, and images are links, so nothing is loaded.

const DEEPEST = 12;
const LONGEST_MARKDOWN_LINE = 10_000;
const LONGEST_FENCE = 300;

/** Render markdown. */
function markdown(text) {
  const all = h("div.prose");
  markdownBlocks(String(text).replace(/\r\n?/g, "\n").split("\n"), all, 0);
  return all;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( {0,9})([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|$)/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

function markdownBlocks(lines, parent, depth) {
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) {
      at++;
    } else if (depth >= DEEPEST) {
      parent.append(h("p", null, visible(lines.slice(at).join("\n"))));
      return;
    } else {
      at = markdownBlock(lines, at, parent, depth);
    }
  }
}

function markdownBlock(lines, at, parent, depth) {
  const line = lines[at];
  if (line.length > LONGEST_MARKDOWN_LINE) {
    // Nobody writes such a line of markdown; what looks for marks in it could take long.
    parent.append(h("p", null, visible(line)));
    return at + 1;
  }
  let found = fenceOf(line);
  if (found) return codeFence(lines, at, found[1], parent);
  found = HEADING.exec(line);
  if (found) {
    // The page has headings of its own above those of a text.
    parent.append(h(`h${Math.min(6, found[1].length + 2)}`, null, markdownInline(found[2].trim().replace(/(?<!\S)#{1,9}$/, ""))));
    return at + 1;
  }
  if (RULE.test(line.slice(0, 200))) {
    parent.append(h("hr"));
    return at + 1;
  }
  if (QUOTE.test(line)) {
    const end = lineWhere(lines, at, (next) => !next.trim());
    const quote = h("blockquote");
    markdownBlocks(lines.slice(at, end).map((next) => next.replace(QUOTE, "")), quote, depth + 1);
    parent.append(quote);
    return end;
  }
  if (ITEM.test(line)) return markdownList(lines, at, parent, depth);
  const under = (lines[at + 1] || "").slice(0, 1000);
  if (line.includes("|") && under.includes("|") && TABLE_RULE.test(under)) return markdownTable(lines, at, parent);
  const end = lineWhere(lines, at + 1, (next) => !next.trim() || next.length > LONGEST_MARKDOWN_LINE || fenceOf(next) || HEADING.test(next) || QUOTE.test(next)
    || RULE.test(next) || ITEM.test(next));
  parent.append(h("p", null, markdownInline(lines.slice(at, end).map((next) => next.trimStart()).join("\n"))));
  return end;
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

function markdownList(lines, at, parent, depth) {
  const first = ITEM.exec(lines[at]);
  const numbered = /\d/.test(first[2]);
  const all = h(numbered ? "ol" : "ul", { start: numbered ? parseInt(first[2], 10) : null });
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || /\d/.test(found[2]) !== numbered || found[1].length > first[1].length + 1) break;
    const indent = found[1].length + 2;
    let end = at + 1;
    while (end < lines.length) {
      const next = lines[end];
      const space = next.length - next.trimStart().length;
      if (!next.trim()) {
        const after = lines[end + 1] || "";
        if (!after.startsWith(" ".repeat(indent))) break;
      } else if (space < indent && (ITEM.test(next) || fenceOf(next) || HEADING.test(next) || !lines[end - 1].trim())) break;
      end++;
    }
    const inside = lines.slice(at + 1, end).map((next) => next.slice(Math.min(next.length - next.trimStart().length, indent + (numbered ? 1 : 0))));
    const item = h("li");
    markdownBlocks([found[3] || "", ...inside], item, depth + 1);
    const only = item.firstElementChild;
    if (only && only.tagName === "P") only.replaceWith(...only.childNodes);
    all.append(item);
    at = end;
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] || "")) at++;
  }
  parent.append(all);
  return at;
}

function tableCells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").slice(0, 60).map((cell) => cell.trim());
}

function markdownTable(lines, at, parent) {
  const end = lineWhere(lines, at + 2, (next) => !next.trim() || !next.includes("|"));
  const head = h("tr", null, tableCells(lines[at]).map((cell) => h("th", { scope: "col" }, markdownInline(cell))));
  const rows = lines.slice(at + 2, end).map((line) => h("tr", null, tableCells(line).map((cell) => h("td", null, markdownInline(cell)))));
  parent.append(h("div.scroll", { tabindex: "0" }, h("table", null, h("thead", null, head), h("tbody", null, rows))));
  return end;
}

// One pass from left to right; each alternative ends within its own limit, so the time grows with the length only.
const INLINE = /\\([!-/:-@[-`{-~])|(`{1,3})(?!`)([^\n]{1,2000}?)(?<!`)\2(?!`)|(!?)\[([^\][\n]{0,500})\]\(<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\))?)>?(?:\s+"[^"\n]{0,200}")?\)|\*\*([^\n*](?:[^\n]{0,800}?[^\n*])?)\*\*|(?<![\w*])\*([^\s*](?:[^\n*]{0,800}?[^\s*])?)\*(?![\w*])|(?<![\w_])_([^\s_](?:[^\n_]{0,800}?[^\s_])?)_(?![\w_])|~~([^\n~]{1,800})~~|(https?:\/\/[^\s<>()"'`]{1,2000}[^\s<>()"'`.,;:!?])/g;
const LONGEST_INLINE = 20_000;

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
  const [whole, escape, ticks, code, image, label, target, strong, star, underscore, deleted, address] = found;
  if (escape) return visible(escape);
  if (ticks) return h("code", null, visible(code.replace(/^ (.*) $/, "$1")));
  if (target) return safeLink(target, image ? [`image: ${label || target}`] : [markdownInline(label || target, depth + 1)], whole);
  if (strong) return h("strong", null, markdownInline(strong, depth + 1));
  if (star || underscore) return h("em", null, markdownInline(star || underscore, depth + 1));
  if (deleted) return h("del", null, markdownInline(deleted, depth + 1));
  return safeLink(address, [address], whole);
}

function safeLink(target, label, whole) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return visible(whole);
  // What it leads to is said, because the words of a link can be anything.
  return h("a", { href: target, title: plain(target), target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}
