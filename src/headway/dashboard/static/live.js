// Follows what happens and brings the page up to date: the same page is asked for again, and what is marked
// data-live is changed where it differs. Focus, open details and half-filled forms stay as they are.
import { refreshTimes } from "./times.js";

const SHORTEST = 1000; // between two refreshes
const root = document.documentElement.dataset.root;
let changed = false;
let refreshing = null;
let last = "";
let lastRefresh = performance.now();
let pause = SHORTEST;
let answers = 0;

export async function refresh() {
  refreshing ??= get().finally(() => { refreshing = null; });
  return refreshing;
}

async function get() {
  changed = false;
  const began = performance.now();
  const known = answers;
  const response = await fetch(location.href, { headers: { Accept: "text/html", "X-Headway-Live": "1" }, cache: "no-store" });
  if (response.redirected && new URL(response.url).pathname.endsWith("/ui/login")) { location.reload(); return; }
  if (response.status >= 500) throw new Error(`answered ${response.status}`);
  const text = await response.text();
  if (known === answers) show(text); else changed = true; // it was asked for before something was done here
  lastRefresh = performance.now();
  pause = Math.max(SHORTEST, 4 * (lastRefresh - began));
}

// The page as it is after a form was sent, with what it says about that.
export function answer(text) {
  answers += 1;
  show(text, true);
}

// What came of the last form stays until the next one: whoever did something wrong has time to undo it.
function show(text, answered = false) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const focused = document.activeElement;
  if (document.title !== fresh.title) document.title = fresh.title;
  for (const region of document.querySelectorAll("[data-live]")) {
    if (region.id === "said" && !answered) continue;
    const now = fresh.getElementById(region.id);
    if (now) morph(region, now);
  }
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  refreshTimes();
  document.dispatchEvent(new CustomEvent("headway:shown"));
}

// What is opened and closed is known by its words, wherever it comes to stand.
const spoken = (node) => (node.nodeName === "DETAILS" ? `details ${node.firstElementChild?.textContent}` : null);
const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || spoken(node) : null);

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function morph(old, now) {
  if (old.nodeType === 3) { if (old.data !== now.data) old.data = now.data; return; }
  if (old.nodeType !== 1 || old.isEqualNode(now) || old.hasAttribute("data-keep")) return;
  attributes(old, now);
  if (old.nodeName === "TEXTAREA" && old.value !== old.defaultValue) return;
  children(old, now);
}

function attributes(old, now) {
  const mine = (name) => (name === "open" && old.nodeName === "DETAILS") || (name === "hidden" && old.id === "lost");
  for (const { name, value } of now.attributes) if (!mine(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!mine(name) && !now.hasAttribute(name)) old.removeAttribute(name);
}

function children(old, now) {
  const keyed = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  let place = old.firstChild;
  for (const wanted of [...now.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key) : place;
    if (!key) while (found && keyOf(found)) found = found.nextSibling;
    if (found && alike(found, wanted)) {
      if (found === place) place = place.nextSibling;
      else old.insertBefore(found, place);
      morph(found, wanted);
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next; }
}

// --- following --------------------------------------------------------------------------------------------------

const lost = (is) => { const banner = document.getElementById("lost"); if (banner) banner.hidden = !is; };
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export function follow() {
  if (!document.querySelector("[data-live]") || !document.getElementById("strip")) return;
  if (document.querySelector("[data-still]")) return; // it shows what cannot be shown again
  stay();
  setInterval(beat, 250);
  document.addEventListener("visibilitychange", () => { changed = true; });
}

async function beat() {
  if (document.hidden || refreshing || document.querySelector("[data-dragging]")) return;
  const marked = document.querySelector("[data-beat]");
  const passed = performance.now() - lastRefresh;
  const due = changed ? passed >= pause : marked && passed >= Math.max(pause, 1000 * Number(marked.dataset.beat));
  if (!due) return;
  try { await refresh(); lost(false); } catch { lost(true); lastRefresh = performance.now(); changed = true; pause = 2000; }
}

// One stream for as long as the page is looked at: browsers allow few connections to one server.
async function stay() {
  for (let wait = 500; ; wait = Math.min(8000, wait * 2)) {
    while (document.hidden) await sleep(500);
    try {
      if (await read()) wait = 250;
      changed = true;
    } catch { lost(true); }
    await sleep(wait);
  }
}

async function read() {
  const leaving = new AbortController();
  const away = () => { if (document.hidden) leaving.abort(); };
  document.addEventListener("visibilitychange", away);
  addEventListener("pagehide", () => leaving.abort(), { once: true });
  try {
    const headers = last ? { "Last-Event-ID": last } : {};
    const response = await fetch(`${root}/api/events`, { headers, signal: leaving.signal, cache: "no-store" });
    if (response.status === 401) { location.reload(); return true; }
    if (!response.ok) throw new Error(`answered ${response.status}`);
    lost(false);
    changed = true;
    await pump(response.body.getReader());
    return true;
  } catch (error) {
    if (leaving.signal.aborted) return true;
    throw error;
  } finally {
    document.removeEventListener("visibilitychange", away);
  }
}

async function pump(reader) {
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const id = /^id: (\d+)$/m.exec(message);
      if (id) last = id[1];
      if (/^event: /m.test(message)) changed = true;
    }
  }
}
