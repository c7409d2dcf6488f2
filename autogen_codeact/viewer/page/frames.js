// HTML and SVG that code has shown. It gets into a frame without scripts, network, forms or navigation: `sandbox` without any
// permission, a content security policy of its own, and nothing in it that loads or runs.

const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; form-action 'none'; base-uri 'none'";
const LIGHT = "html{color-scheme:light;background:#fff;color:#1f2328}";
// As the page has it: its colours, its font, and lines between the rows.
const THEMED = "html{color-scheme:light dark;background:light-dark(#fbfbfa,#141619);color:light-dark(#1e2225,#e1e4e8)}"
  + "table,th,td{border:0}th,td{border-bottom:1px solid light-dark(#e4e5e5,#292d32)!important}thead th{color:light-dark(#5d656d,#98a1ab)}";
const STYLE = "body{margin:8px;font:13.5px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Liberation Sans','DejaVu Sans',sans-serif}"
  + "table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:3px 9px;border-bottom:1px solid #e3e5e8;text-align:right}"
  + "th{font-weight:600}img,svg{max-width:100%;height:auto}";
// What sets colours of its own was made for white paper.
const OWN_COLOURS = /\b(?:color|background|fill|stroke)\b/i;
const REMOVED = "script,link,meta,base,iframe,frame,frameset,object,embed,applet,portal,fencedframe,template,noscript,audio,video,source,track,"
  + "form,input,button,select,textarea,animate,set,animateMotion,animateTransform,feImage";
const LARGEST = 4_000_000;
const MOST_READINGS = 5;
const TALLEST = 480;
const DEEPEST_JSON = 50;

/** Show HTML; null if nothing of it can be seen without scripts. */
function htmlFrame(html, name) {
  if (html.length > LARGEST) return null;
  const page = parsedHtml(html);
  const rows = page.querySelectorAll("tr").length;
  const seen = page.body.textContent.trim() || page.querySelector("img[src],svg,table,hr");
  if (!seen) return null;
  const lines = page.body.textContent.trim().split("\n").filter((line) => line.trim()).length;
  const image = page.querySelector("img[src],svg") ? 320 : 0;
  const height = Math.max(image, rows ? rows * 28 + 24 : lines * 21 + 30);
  return sandboxedFrame(page, name, Math.min(Math.max(height, 56), TALLEST));
}

/** Show an SVG image. */
function svgFrame(svg, name) {
  if (svg.length > LARGEST) return null;
  const page = parsedHtml(svg);
  const root = page.querySelector("svg");
  if (!root) return null;
  const box = (root.getAttribute("viewBox") || "").trim().split(/[\s,]+/).map(Number);
  const height = pixels(root.getAttribute("height")) || (box.length === 4 && box[3] > 0 ? box[3] : 200);
  page.body.replaceChildren(root);
  return sandboxedFrame(page, name, Math.min(Math.max(height + 20, 56), TALLEST));
}

function pixels(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(px|pt)?\s*$/.exec(text || "");
  return found ? Number(found[1]) * (found[2] === "pt" ? 4 / 3 : 1) : 0;
}

function nonce() {
  const from = document.querySelector("[nonce]");
  return from ? from.nonce.replace(/[^\w+/=-]/g, "") : "";
}

// A document that is parsed has the policy of this page as well, and the browser would complain of each style and handler in it. So
// these get other names before. What this misses is removed later.
function parsedHtml(html) {
  const renamed = html.replace(/<[a-z][^<>]*>/gi, (tag) => tag.replace(/([\s/"'])style\s*=/gi, "$1data-inline=")
    .replace(/([\s/"'])on[a-z]+\s*=/gi, "$1data-gone=").replace(/^<(?:base|link|meta)\b/i, "<wbr")
    .replace(/^<style\b/i, `<style nonce="${nonce()}"`));
  const page = new DOMParser().parseFromString(renamed, "text/html");
  removeActive(page);
  return page;
}

// The frame forbids all of this already; what is gone can't be forbidden wrongly. Some of it is no request that a policy
// knows of, such as connecting in advance to the host of a link.
function removeActive(page) {
  for (const element of page.querySelectorAll(REMOVED)) element.remove();
  for (const element of page.querySelectorAll("*")) {
    for (const { name, value } of [...element.attributes]) {
      const key = name.toLowerCase();
      const address = /^(?:xlink:)?(?:href|src)$/.test(key);
      const kept = address && (value.startsWith("#") || (element.matches("img,image") && /^data:image\/(?:png|jpeg|gif|webp);base64,/i.test(value)));
      if (key.startsWith("on") || (address && !kept) || FORBIDDEN.has(key)) element.removeAttribute(name);
    }
  }
}

const FORBIDDEN = new Set(["srcdoc", "srcset", "action", "formaction", "ping", "background", "poster", "data", "target", "autofocus",
  "manifest", "imagesrcset", "http-equiv", "style"]);

// The frame inherits the policy of this page, which allows styles with its nonce only. Styles of single elements can't have one, so
// they become rules.
function stylesOf(page) {
  const all = [...page.querySelectorAll("style")].map((style) => style.textContent);
  for (const style of page.querySelectorAll("style")) style.remove();
  page.querySelectorAll("[data-inline]").forEach((element, index) => {
    all.push(`[data-inline="${index}"][data-inline]{${element.getAttribute("data-inline").replace(/[{}]/g, "")}}`);
    element.setAttribute("data-inline", index);
  });
  return all.join("\n").replace(ELSEWHERE, "none").replace(/<\//g, "<\\/");
}

// Style sheets and images from elsewhere, which the policy would stop.
const ELSEWHERE = /@import[^;]*;?|url\(\s{0,9}["']?(?!["']?(?:data:|#))[^()]*\)/gi;

// Some text becomes other elements when it is read a second time, as the frame does. So it is read and cleaned until nothing changes;
// null if it never ends.
function settled(page) {
  let text = page.body.outerHTML;
  for (let reading = 0; reading < MOST_READINGS; reading++) {
    const again = new DOMParser().parseFromString(text, "text/html");
    removeActive(again);
    for (const style of again.querySelectorAll("style")) style.remove();
    const next = again.body.outerHTML;
    if (next === text) return text;
    text = next;
  }
  return null;
}

function sandboxedFrame(page, name, height) {
  const css = stylesOf(page);
  const themed = !OWN_COLOURS.test(css) && !page.querySelector("svg,img,[bgcolor],[color]");
  const body = settled(page);
  if (body === null) return null;
  const text = `<!doctype html><html><head><meta http-equiv="Content-Security-Policy" content="${POLICY}">`
    + `<meta http-equiv="x-dns-prefetch-control" content="off"><meta name="referrer" content="no-referrer">`
    + `<style nonce="${nonce()}">${themed ? THEMED : LIGHT}${STYLE}\n${css}</style></head>${body}</html>`;
  const element = h(`iframe.display${themed ? ".plain" : ""}`, { sandbox: "", title: name, loading: "lazy", referrerpolicy: "no-referrer" });
  element.style.height = `${Math.round(height)}px`;
  element.srcdoc = text;
  return element;
}

/** JSON text with indents; the text itself if it is no JSON, or if most of the result would be indents. Numbers and keys stay as they are. */
function prettyJson(text) {
  if (text.length > 200_000 || nesting(text) > DEEPEST_JSON) return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const indented = text.replace(/"(?:[^"\\]|\\.)*"|\s+|[[\]{},:]/g, (token) => {
    if (token === "[" || token === "{") return depth++, token + line();
    if (token === "]" || token === "}") return depth--, line() + token;
    if (token === ",") return token + line();
    return token === ":" ? ": " : token.trim();
  });
  return plain(indented.replace(/([[{])\n\s*([\]}])/g, "$1$2"));
}

function nesting(text) {
  let depth = 0;
  let deepest = 0;
  for (const character of text) {
    if (character === "[" || character === "{") deepest = Math.max(deepest, ++depth);
    else if (character === "]" || character === "}") depth--;
  }
  return deepest;
}
