// Elements, text and numbers. All text of a run gets into the page through these functions, as text nodes and attributes.

// Control characters, direction marks and all else that can't be seen. Joiners stay, and variation selectors where they select:
// several scripts and most emoji need them. What is approved has neither, because the server has escaped them.
const INVISIBLE = /(?![\n\t\u200c\u200d\p{Variation_Selector}])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u{16fe4}\u{1d159}]/u.source
  + /|(?<=[\x00-"$-)+-/:-\x7f\s\p{Default_Ignorable_Code_Point}])\p{Variation_Selector}/u.source;
const invisible = new RegExp(INVISIBLE, "gu");
const escapes = new RegExp(`\\x1b\\[[0-9;:?]*[ -/]*[@-~]|${INVISIBLE}`, "gu");
const MOST_ESCAPES = 2000;

function escaped(character) {
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

/** Text whose control and invisible characters are shown as escapes. */
function plain(text) {
  return String(text).replace(/\r\n?/g, "\n").replace(invisible, escaped);
}

/** The same as nodes, with the escapes set apart from the text. */
function visible(text) {
  const all = document.createDocumentFragment();
  const clean = String(text).replace(/\r\n?/g, "\n");
  let end = 0;
  let marks = 0;
  for (const found of clean.matchAll(escapes)) {
    if (++marks > MOST_ESCAPES) break;
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
function h(name, properties, ...children) {
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
function add(element, children) {
  for (const child of Array.isArray(children) ? children : [children]) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.0005) return "0 ms";
  if (value < 0.9995) return `${value < 0.01 ? (value * 1000).toFixed(1) : Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

function bytes(value) {
  if (value < 1000) return `${value} bytes`;
  const units = ["kB", "MB", "GB", "TB"];
  let unit = -1;
  do value /= 1000; while (++unit < units.length - 1 && value >= 999.5);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function count(value, one, many = `${one}s`) {
  return `${(value || 0).toLocaleString("en")} ${value === 1 ? one : many}`;
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number in few characters, such as 12.3k. */
function short(value) {
  return compact.format(value || 0).replace("K", "k");
}

function clock(iso) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString("en-GB");
}

/** When something was, in few characters: the time of today, or the day. */
function when(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return date.toLocaleTimeString("en-GB", { timeStyle: "short" });
  const year = date.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
}

/** Say something to screen readers. */
function announce(text) {
  document.getElementById("announcements").textContent = plain(text);
}

const OUTCOMES = {
  ok: "ok", completed: "ok", passed: "ok", "not passed": "bad", invalid: "bad", stopped: "warn", running: "busy", error: "bad", failed: "bad", timeout: "bad", oom: "bad", crashed: "bad",
  denied: "warn", refused: "warn", cancelled: "warn", waiting: "warn", interrupted: "warn", unreadable: "bad", unfinished: "warn", gap: "warn", lost: "bad", restored: "warn",
};
const WORDS = { oom: "out of memory", lost: "variables lost", restored: "variables restored" };

/** How something ended, as a coloured word. */
function chip(outcome, more) {
  return h(`span.chip.${OUTCOMES[outcome] || "plain"}`, null, WORDS[outcome] || outcome, more);
}
