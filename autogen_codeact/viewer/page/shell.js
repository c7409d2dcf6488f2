// What both pages have: the bar at the top, the keyboard and its help.

/** A quiet button; `words` says what it does. */
function quietButton(text, words, onclick, more = {}) {
  return h("button.quiet", { type: "button", "aria-label": words, title: words, onclick, ...more }, text);
}

/** Build a page: a bar with `start` and `end`, then `content`. `keys` is a list of [keys, what they do, function]. */
function buildPage({ start, end, content, keys }) {
  const all = [...keys, [["?"], "this help", () => openHelp(all)]];
  const bar = h("header.bar", null, h("div.bar-row", null, start, h("span.space"), end, quietButton("?", "Keyboard (?)", () => openHelp(all))));
  document.body.replaceChildren();
  add(document.body, [
    h("a.skip", { href: "#content" }, "Skip to the content"), bar, content,
    h("p.sr", { id: "announcements", role: "status", "aria-live": "polite" }),
  ]);
  document.addEventListener("keydown", (event) => handleKey(event, all));
  new ResizeObserver(() => document.documentElement.style.setProperty("--top", `${bar.offsetHeight}px`)).observe(bar);
  return bar;
}

function handleKey(event, keys) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select") && event.key !== "Escape") return;
  // Enter on a link or a button is for that alone.
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const found = keys.find(([names]) => names.includes(event.key));
  if (!found) return;
  found[2](event);
  event.preventDefault();
}

function openHelp(keys) {
  const dialog = h("dialog.help", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", null, keys.map(([names, words]) => h("div", null, h("dt", null, names.map((name) => h("kbd", null, name))), h("dd", null, words)))),
    h("p.muted", null, "The browser's own search finds only what is near the screen; “/” searches everything."),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}
