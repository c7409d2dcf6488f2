// Where the page of a one-file export gets its data: elements of the page itself. It is in the place of data.js, with its names.

const RECENT = 8;
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const parts = { steps: [], summaries: [] };
// The elements are remembered, because the page puts its own content in their place.
const header = document.getElementById("run-header");
const files = new Map([...document.querySelectorAll("script[id^=file-]")].map((element) => [element.id.slice(5), element]));
const parsed = new Map();
const addresses = new Map();

for (const element of document.querySelectorAll("script[data-part]")) {
  parts[element.dataset.part].push({ element, from: Number(element.dataset.from), to: Number(element.dataset.to) });
}

function contents(part) {
  const known = parsed.get(part) || JSON.parse(part.element.textContent);
  // The last ones that were used stay, the others can be parsed again.
  parsed.delete(part);
  parsed.set(part, known);
  if (parsed.size > RECENT) parsed.delete(parsed.keys().next().value);
  return known;
}

function range(all, from, to) {
  const found = all.filter((part) => part.from <= to && part.to >= from).flatMap(contents);
  return found.filter((each) => each.number >= from && each.number <= to);
}

export function place() {
  return { kind: "run", id: "" };
}

export function listUrl() {
  return null;
}

export function runUrl() {
  return null;
}

export async function getRuns() {
  throw new Error("This page has one run only.");
}

export async function getHeader() {
  return JSON.parse(header.textContent);
}

export async function getSummaries(from, to) {
  return range(parts.summaries, from, to);
}

export async function getSteps(from, to) {
  return range(parts.steps, from, to);
}

/** The numbers of the steps that contain a text. */
export async function findSteps(text) {
  const wanted = text.toLowerCase();
  const found = [];
  for (const part of parts.steps) {
    for (const step of JSON.parse(part.element.textContent)) if (contains(step, wanted)) found.push(step.number);
    // The page stays usable while a long run is searched.
    await new Promise((resolve) => setTimeout(resolve));
  }
  return found;
}

function contains(value, wanted) {
  if (typeof value === "string") return value.toLowerCase().includes(wanted);
  return value !== null && typeof value === "object" && Object.values(value).some((each) => contains(each, wanted));
}

export function outputUrl() {
  return null;
}

/** The address of a stored file, which needs no request; null if the file is not in this page. Only images can be opened. */
export function fileUrl(sha, mime) {
  const element = files.get(sha);
  if (!element) return null;
  const type = IMAGES.has(mime) ? mime : "application/octet-stream";
  const key = `${sha} ${type}`;
  if (!addresses.has(key)) {
    addresses.set(key, URL.createObjectURL(new Blob([bytesOf(element)], { type })));
  }
  return addresses.get(key);
}

function bytesOf(element) {
  return Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
}

/** The text of a stored file. */
export async function fileText(sha) {
  if (!files.has(sha)) throw new Error("This file is not in this page.");
  return new TextDecoder().decode(bytesOf(files.get(sha)));
}

/** A run in a file never changes. */
export function subscribe() {
  return null;
}

export async function answer() {
  throw new Error("This page is a copy of a run: nobody waits for an answer.");
}

export async function stop() {
  throw new Error("This page is a copy of a run: there is nothing to stop.");
}
