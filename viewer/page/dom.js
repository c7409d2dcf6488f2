// Elements, text and numbers. All text of a run gets into the page through these functions, as text nodes and attributes.

// Control characters, direction marks and all else that can't be seen. Joiners stay, and variation selectors where they select:
// several scripts and most emoji need them. What is approved has neither, because the server has escaped them.
const INVISIBLE = /(?![\n\t\u200c\u200d\p{Variation_Selector}])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u{16fe4}\u{1d159}]/u.source
  + /|(?<=[\x00-"$-)+-/:-\x7f\s\p{Default_Ignorable_Code_Point}])\p{Variation_Selector}/u.source;
const invisible = new RegExp(INVISIBLE, "gu");
const escapes = new RegExp(`\\x1b\\[[0-9;:?]*[ -/]*[@-~]|${INVISIBLE}`, "gu");
const MOST_MARKS = 2000;

function escaped(character) {
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

/** Text whose control and invisible characters are shown as escapes. */
export function plain(text) {
  return String(text).replace(/\r\n?/g, "\n").replace(invisible, escaped);
}

/** The same as nodes, with the escapes set apart from the text. */
export function visible(text) {
  const all = document.createDocumentFragment();
  const clean = String(text).replace(/\r\n?/g, "\n");
  let end = 0;
  let marks = 0;
  for (const found of clean.matchAll(escapes)) {
    if (++marks > MOST_MARKS) break;
    if (found.index > end) all.append(clean.slice(end, found.index));
    const mark = document.createElement("span");
    mark.className = "escape";
    mark.textContent = plain(found[0]);
    all.append(mark);
    end = found.index + found[0].length;
  }
  if (end < clean.length) all.append(plain(clean.slice(end)));
  return all;
}

/** Make an element. Properties that begin with "on" are listeners; children are nodes, texts, lists of them, or nothing. */
export function h(name, properties, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className += ` ${value}`;
    else element.setAttribute(key, value === true ? "" : plain(value));
  }
  add(element, children);
  return element;
}

/** Append nodes, texts, and lists of them. */
export function add(element, children) {
  for (const child of Array.isArray(children) ? children : [children]) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

/** A small image from the paths of an SVG. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  shape.setAttribute("d", ICONS[name]);
  svg.append(shape);
  return svg;
}

const ICONS = {
  back: "M10 3 5 8l5 5",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  help: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM6 6.2c0-2.6 4-2.6 4 0C10 7.6 8 7.6 8 9.2M8 11.4v.2",
  list: "M2.5 4h11M2.5 8h11M2.5 12h11",
  fold: "M4 6l4 4 4-4",
  stop: "M4 4h8v8H4z",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M8 3v10M4 9l4 4 4-4",
  open: "M6 3H3v10h10v-3M9 3h4v4M13 3 7.5 8.5",
};

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.0005) return "0 ms";
  if (value < 0.9995) return `${value < 0.01 ? (value * 1000).toFixed(1) : Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

export function bytes(value) {
  if (value < 1000) return `${value} bytes`;
  const units = ["kB", "MB", "GB", "TB"];
  let unit = -1;
  do value /= 1000; while (++unit < units.length - 1 && value >= 999.5);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function count(value, one, many = `${one}s`) {
  return `${(value || 0).toLocaleString("en")} ${value === 1 ? one : many}`;
}

/** A number in few characters, such as 12.3k. */
export function short(value) {
  if (!value) return "0";
  if (value < 1000) return String(value);
  return value < 999_500 ? `${tenths(value / 1000)}k` : `${tenths(value / 1e6)}M`;
}

function tenths(value) {
  return value < 99.95 ? value.toFixed(1).replace(".0", "") : value.toFixed(0);
}

export function clock(iso) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString("en-GB");
}

/** When something was, in few characters: the time of today, or the day. */
export function when(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return date.toLocaleTimeString("en-GB", { timeStyle: "short" });
  const year = date.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
}

/** Say something to screen readers. */
export function announce(text) {
  document.getElementById("announcements").textContent = plain(text);
}

const OUTCOMES = {
  ok: "ok", completed: "ok", running: "busy", error: "bad", failed: "bad", timeout: "bad", oom: "bad", crashed: "bad",
  denied: "warn", refused: "warn", cancelled: "warn", interrupted: "warn", unreadable: "bad", unfinished: "warn", gap: "warn", lost: "bad", restored: "warn",
};
const WORDS = { oom: "out of memory", lost: "state lost", restored: "state restored", kept: "state kept" };

/** How something ended, as a coloured word. */
export function chip(outcome, more) {
  return h(`span.chip.${OUTCOMES[outcome] || "plain"}`, null, WORDS[outcome] || outcome, more);
}

/** Times below this are not shown. */
export const SHORTEST = 0.001;

/** Where time went: a bar of three colours. */
export function timingBar(timing, total) {
  const parts = [["model", timing.model_s], ["sandbox", timing.sandbox_s], ["tools", timing.tools_s]];
  const sum = Math.max(total || 0, parts.reduce((all, [, value]) => all + (value || 0), 0));
  const words = parts.filter(([, value]) => value >= SHORTEST).map(([name, value]) => `${name} ${seconds(value)}`).join(", ");
  if (!sum || !words) return null;
  const bar = h("span.timing", { role: "img", "aria-label": words, title: words });
  for (const [name, value] of parts) {
    if (!(value >= SHORTEST)) continue;
    const part = h(`span.part.${name}`);
    part.style.width = `${(100 * value) / sum}%`;
    bar.append(part);
  }
  return bar;
}
