// What both pages have: the bar at the top, light and dark, the keyboard and its help.
import { add, h, icon } from "./dom.js";

const THEMES = ["auto", "light", "dark"];

function storedTheme() {
  try {
    const theme = localStorage.getItem("codeact-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto"; // a page from a file may have no storage
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("codeact-theme", theme);
  } catch {
    // It holds until the page is closed.
  }
}

function nextTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme;
  const shown = now === "auto" ? (dark ? "dark" : "light") : now;
  setTheme(shown === "dark" ? "light" : "dark");
}

/** A button with an icon; `words` says what it does. */
export function iconButton(name, words, onclick, more = {}) {
  return h("button.quiet", { type: "button", "aria-label": words, title: words, onclick, ...more }, icon(name));
}

/**
 * Build a page: a bar with `start` and `end`, then `content`. `keys` is a list of [keys, what they do, function].
 */
export function buildPage({ start, end, content, keys }) {
  document.documentElement.dataset.theme = storedTheme();
  const all = [...keys, [["t"], "light or dark", nextTheme], [["?"], "this help", () => openHelp(all)]];
  document.body.replaceChildren();
  add(document.body, [
    h("a.skip", { href: "#content" }, "Skip to the content"),
    h("header.bar", null, h("div.bar-row", null, start, h("span.space"), end,
      iconButton("theme", "Light or dark (t)", nextTheme), iconButton("help", "Keyboard (?)", () => openHelp(all), { class: "help-button" }))),
    content,
    h("p.sr", { id: "announcements", role: "status", "aria-live": "polite" }),
  ]);
  document.addEventListener("keydown", (event) => handleKey(event, all));
  const bar = document.querySelector("header.bar");
  new ResizeObserver(() => document.documentElement.style.setProperty("--top", `${bar.offsetHeight}px`)).observe(bar);
}

function handleKey(event, keys) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing && event.key !== "Escape") return;
  // Enter on a link or a button is for that alone.
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const found = keys.find(([names]) => names.includes(event.key));
  if (!found) return;
  if (found[2](event) !== false) event.preventDefault();
}

const NAMES = { Escape: "Esc" };

function openHelp(keys) {
  const dialog = h("dialog.help", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", null, keys.map(([names, words]) => h("div", null,
      h("dt", null, names.map((name) => h("kbd", null, NAMES[name] || name))), h("dd", null, words)))),
    h("p.muted", null, "The browser's own search finds only what is near the screen; “/” searches everything."),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
}
