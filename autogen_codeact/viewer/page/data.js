// Where the page gets its data: the server's HTTP API, or in an exported file the elements of the file itself. Numbers of steps begin
// at 1, and both ends of a range are included.

const exportedHeader = document.getElementById("run-header");
const RUNS_PATH = "/runs/";

function apiData() {
  const path = location.pathname;
  const cut = path.indexOf(RUNS_PATH);
  const base = cut < 0 ? path.replace(/\/[^/]*$/, "") : path.slice(0, cut);
  const id = cut < 0 ? "" : path.slice(cut + RUNS_PATH.length).replace(/\/$/, "");
  const api = (rest) => `${base}/api/runs/${id}${rest}`;

  async function request(url, options = {}) {
    const answer = await fetch(url, { credentials: "omit", cache: "no-store", ...options });
    if (answer.ok) return answer;
    const text = (await answer.text()).slice(0, 300);
    let reason = text || `the server answered ${answer.status}`;
    try {
      reason = JSON.parse(text).error || reason;
    } catch {
      // It is text.
    }
    throw Object.assign(new Error(reason), { status: answer.status });
  }
  const get = async (url) => (await request(url)).json();
  const post = (url, body) => request(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const fileUrl = (sha, type) => (sha ? api(`/files/${sha}${type ? `?type=${encodeURIComponent(type)}` : ""}`) : null);

  return {
    /** Whether the address names a run, and not the list of runs. */
    isRun: Boolean(id),
    /** Whether the list is that of a batch. */
    isBatch: document.body.classList.contains("of-batch"),
    /** The address of the list of runs; null if there is none. */
    listUrl: `${base}/`,
    runUrl: (run) => `${base}${RUNS_PATH}${encodeURIComponent(run)}`,
    getRuns: (query) => get(`${base}/api/runs?${new URLSearchParams(query)}`),
    getBatch: (query) => get(`${base}/api/batch?${new URLSearchParams(query)}`),
    getHeader: () => get(api("")),
    getSummaries: (from, to) => get(api(`/summaries?from=${from}&to=${to}`)),
    getSteps: (from, to) => get(api(`/steps?from=${from}&to=${to}`)),
    /** The numbers of the steps that contain a text. */
    findSteps: async (text) => (await get(api(`/search?q=${encodeURIComponent(text)}`))).steps,
    /** The address of the whole output of a step, as plain text; null if there is none. */
    outputUrl: (number) => api(`/output/${number}`),
    /** The address of a stored file; null if it was not stored. */
    fileUrl,
    fileText: async (sha) => (await request(fileUrl(sha))).text(),
    /** What is new since a revision, as soon as something is: {header, summaries, questions}. `questions` are those that are shown. */
    getChanges: (since, questions) => get(api(`/changes?since=${since}&questions=${questions.join(",")}`)),
    /** Answer a question of the run. */
    answer: (question, approve) => post(api("/answer"), { question, approve }),
    stop: () => post(api("/stop"), {}),
  };
}

function exportedData() {
  const parts = { steps: [], summaries: [] };
  // The elements are remembered, because the page puts its own content in their place.
  for (const element of document.querySelectorAll("script[data-part]")) {
    parts[element.dataset.part].push({ element, from: Number(element.dataset.from), to: Number(element.dataset.to) });
  }
  const files = new Map([...document.querySelectorAll("script[id^=file-]")].map((element) => [element.id.slice(5), element]));
  const addresses = new Map();
  const bytesOf = (sha) => Uint8Array.from(atob(files.get(sha).textContent), (character) => character.charCodeAt(0));

  function range(all, from, to) {
    const found = all.filter((part) => part.from <= to && part.to >= from).flatMap((part) => JSON.parse(part.element.textContent));
    return found.filter((each) => each.number >= from && each.number <= to);
  }

  function contains(value, wanted) {
    if (typeof value === "string") return value.toLowerCase().includes(wanted);
    return value !== null && typeof value === "object" && Object.values(value).some((each) => contains(each, wanted));
  }

  return {
    isRun: true,
    listUrl: null,
    getHeader: async () => JSON.parse(exportedHeader.textContent),
    getSummaries: async (from, to) => range(parts.summaries, from, to),
    getSteps: async (from, to) => range(parts.steps, from, to),
    async findSteps(text) {
      const wanted = text.toLowerCase();
      const found = [];
      for (const part of parts.steps) {
        for (const step of JSON.parse(part.element.textContent)) if (contains(step, wanted)) found.push(step.number);
        // The page stays usable while a long run is searched.
        await new Promise((resolve) => setTimeout(resolve));
      }
      return found;
    },
    outputUrl: () => null,
    /** The address of a stored file, which needs no request; null if the file is not in this page. Only images can be opened. */
    fileUrl(sha, wanted) {
      if (!files.has(sha)) return null;
      const type = IMAGE_TYPES.includes(wanted) ? wanted : "application/octet-stream";
      const key = `${sha} ${type}`;
      if (!addresses.has(key)) addresses.set(key, URL.createObjectURL(new Blob([bytesOf(sha)], { type })));
      return addresses.get(key);
    },
    async fileText(sha) {
      if (!files.has(sha)) throw new Error("This file is not in this page.");
      return new TextDecoder().decode(bytesOf(sha));
    },
  };
}

const data = exportedHeader ? exportedData() : apiData();
