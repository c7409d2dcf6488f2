// Where the page gets its data: the server's HTTP API. The one-file export has data_inline.js in its place, with the same names.
// Numbers of steps begin at 1, and both ends of a range are included.

const path = location.pathname;
const cut = path.indexOf("/runs/");
const base = cut < 0 ? path.replace(/\/[^/]*$/, "") : path.slice(0, cut);
const run = cut < 0 ? "" : path.slice(cut + 6).replace(/\/$/, "");

function api(rest) {
  return `${base}/api/runs/${run}${rest}`;
}

async function get(url) {
  const answer = await fetch(url, { credentials: "omit", cache: "no-store" });
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

async function post(url, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(url, { method: "POST", credentials: "omit", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw Object.assign(new Error(await reason(answer)), { status: answer.status });
}

async function reason(answer) {
  const text = (await answer.text()).slice(0, 300);
  try {
    return JSON.parse(text).error || text;
  } catch {
    return text || `the server answered ${answer.status}`;
  }
}

/** What the address names: the list of runs, or one run. */
export function place() {
  return run ? { kind: "run", id: decodeURIComponent(run) } : { kind: "list" };
}

/** The address of the list of runs; null if there is none. */
export function listUrl() {
  return `${base}/`;
}

export function runUrl(id) {
  return `${base}/runs/${encodeURIComponent(id)}`;
}

/** A part of the list of runs: {runs, total, agents, models}. */
export function getRuns(query) {
  return get(`${base}/api/runs?${new URLSearchParams(query)}`);
}

export function getHeader() {
  return get(api(""));
}

export async function getSummaries(from, to) {
  return get(api(`/summaries?from=${from}&to=${to}`));
}

export async function getSteps(from, to) {
  return get(api(`/steps?from=${from}&to=${to}`));
}

/** The numbers of the steps that contain a text. */
export async function findSteps(text) {
  return (await get(api(`/search?q=${encodeURIComponent(text)}`))).steps;
}

/** The address of the whole output of a step, as plain text; null if there is none. */
export function outputUrl(number) {
  return api(`/output/${number}`);
}

/** The address of a stored file; null if it was not stored. */
export function fileUrl(sha, mime) {
  return sha ? api(`/files/${sha}${mime ? `?type=${encodeURIComponent(mime)}` : ""}`) : null;
}

/** The text of a stored file. */
export async function fileText(sha) {
  const answer = await fetch(fileUrl(sha), { credentials: "omit" });
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.text();
}

/**
 * Listen to a run that goes on. The listener has the functions header, step, output, question, end and state
 * ("open" or "lost"). `since` is the revision of the header that is known. Returns a function that ends it.
 */
export function subscribe(listener, since) {
  const source = new EventSource(api(`/live${since === undefined ? "" : `?since=${since}`}`));
  for (const name of ["header", "step", "output", "question", "end"]) {
    source.addEventListener(name, (event) => listener[name](event.data ? JSON.parse(event.data) : {}));
  }
  source.addEventListener("open", () => listener.state("open"));
  source.addEventListener("error", () => listener.state("lost"));
  return () => source.close();
}

/** Answer a question of the run. */
export function answer(question, approve) {
  return post(api("/answer"), { question, approve });
}

/** Stop the run. */
export function stop() {
  return post(api("/stop"), {});
}
