// Follows the events and refreshes the page: loads the same page again, and updates the elements marked
// data-live where they differ. Focus, open details and half-filled forms stay as they are.
import { renew } from "./flash.js";
import { messages } from "./stream.js";
import { refreshTimes } from "./times.js";

const SHORTEST = 1000; // between two refreshes
const CROWDED = 5000; // between two refreshes, while the server refuses a further stream
const ON_ITS_WAY = 30_000; // the longest wait for a form that leads to another page
const AWAY = "Headway does not answer. Trying again…";
const MISTAKE = "Internal error of Headway: see its log for the details.";
// A form that was refused for one of these reasons is refreshed: the message asks the user to send it again.
const RESENDABLE = ["version_mismatch", "bad_csrf"];
const root = document.documentElement.dataset.root;
let changed = false;
let refreshing = null;
let last = "";
let lastRefresh = performance.now();
let pause = SHORTEST;
let answers = 0;
let left = -Infinity;

export async function refresh() {
  refreshing ??= get().finally(() => { refreshing = null; });
  return refreshing;
}

class Away extends Error {}

// The response of a form that leads to another page may come only once: a refresh meanwhile would abort it.
export function leave(at = performance.now()) { left = at; }

// If the user stops it, no response comes and the page follows again. Only the last form counts: the browser aborts
// a form that is under way when another is sent. Browsers without the event wait for the timeout.
let awaited = null;
window.navigation?.addEventListener("navigate", ({ formData, signal }) => {
  if (!formData) return;
  awaited = signal;
  leave();
  signal.addEventListener("abort", () => { if (awaited === signal) leave(-Infinity); });
});

export const onItsWay = () => performance.now() - left < ON_ITS_WAY;
const again = () => { if (!onItsWay()) location.reload(); };
const still = () => onItsWay() || document.querySelector("[data-dragging]") !== null;

const parse = (text) => new DOMParser().parseFromString(text, "text/html");
const sheetOf = (form) => form?.closest("details.ask");

// The message of an unexpected response: our pages come as HTML, problems of the API as JSON.
export async function wordsOf(response) {
  const text = await response.text();
  if (!/json/.test(response.headers.get("Content-Type"))) return parse(text).querySelector("main .banner.bad")?.textContent.trim() || MISTAKE;
  try { return JSON.parse(text).detail || MISTAKE; } catch { return MISTAKE; }
}

// Returns why the page is stale; empty if it is current.
async function get() {
  changed = false;
  const began = performance.now();
  const known = answers;
  const response = await fetch(location.href, { headers: { Accept: "text/html", "X-Headway-Live": "1" }, cache: "no-store" });
  if (response.redirected && new URL(response.url).pathname.endsWith("/ui/login")) { again(); return ""; }
  let why = response.ok ? "" : await wordsOf(response);
  if (response.status >= 500) throw new Away(why);
  if (response.status === 405) why = ""; // a refused form is shown at an address that accepts forms only
  if (response.ok) {
    const text = await response.text();
    // The response is older than the last action here, or than the start of a drag.
    if (known === answers && !still()) why = show(parse(text)); else changed = true;
  }
  lastRefresh = performance.now();
  pause = Math.max(SHORTEST, 4 * (lastRefresh - began));
  return why;
}

// Shows the page after a form was sent, with its flash message. A refused form keeps its input.
export function answer(text, form = null) {
  answers += 1;
  const fresh = parse(text);
  const refused = fresh.querySelector("#said .banner.bad");
  if (!refused) { begun.delete(form); sheetOf(form)?.removeAttribute("open"); }
  if (!refused || RESENDABLE.includes(refused.dataset.kind)) released = form;
  lost(show(fresh, true));
  released = null;
  if (!refused && form?.closest("[data-live]")) HTMLFormElement.prototype.reset.call(form); // the saved values
}

// Only the next form replaces the flash message.
function show(fresh, answered = false) {
  const focused = document.activeElement;
  const tenant = fresh.documentElement.dataset.tenant;
  const elsewhere = tenant !== document.documentElement.dataset.tenant; // the tenant was chosen on another page
  if (!elsewhere && document.title !== fresh.title) document.title = fresh.title;
  for (const region of document.querySelectorAll("[data-live]")) {
    const now = fresh.getElementById(region.id);
    if (!now) continue;
    if (region.id === "said") { if (answered) renew(now); } else if (!elsewhere) morph(region, now);
  }
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  refreshTimes();
  document.dispatchEvent(new CustomEvent("headway:shown"));
  return elsewhere ? `You act for ${tenant || "no tenant"} now: load this page again.` : "";
}

// --- forms with unsaved input -------------------------------------------------------------------------------------

// A refresh leaves them as they are, with the version they were loaded with: no edit is overwritten unseen.
const begun = new WeakSet();
let released = null;

document.addEventListener("input", ({ target }) => { if (target.form?.getAttribute("method") === "post") begun.add(target.form); });

function held(node) {
  return node.nodeName === "FORM" && node !== released && (begun.has(node) || sheetOf(node)?.open === true);
}

// --- applying a refresh --------------------------------------------------------------------------------------------

// Identifies a details element by its text without numbers, because its place and counts may change.
const spoken = (node) => (node.nodeName === "DETAILS" ? `details ${node.firstElementChild?.textContent.replace(/\d+/g, "#")}` : null);
const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || spoken(node) : null);

function alike(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || keyOf(a) !== keyOf(b)) return false;
  return !held(a) || a.getAttribute("action") === b.getAttribute("action");
}

function morph(old, now) {
  if (old.nodeType === 3) { if (old.data !== now.data) old.data = now.data; return; }
  if (old.nodeType !== 1 || old.isEqualNode(now) || old.hasAttribute("data-keep") || held(old)) return;
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
  const keyed = new Map();
  for (const node of old.childNodes) if (keyOf(node)) keyed.set(keyOf(node), [...(keyed.get(keyOf(node)) ?? []), node]);
  let place = old.firstChild;
  for (const wanted of [...now.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key)?.shift() : place;
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

// Shows why the page is stale, or hides the line.
export function lost(why = AWAY) {
  const banner = document.getElementById("lost");
  if (!banner) return;
  if (why && banner.textContent !== why) banner.textContent = why;
  banner.hidden = !why;
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export function follow() {
  if (!document.querySelector("[data-live]") || !document.getElementById("strip")) return;
  if (document.querySelector("[data-still]")) return; // the page shows a text that the server shows only once
  stay();
  setInterval(beat, 250);
  document.addEventListener("visibilitychange", () => { changed = true; });
}

async function beat() {
  if (document.hidden || refreshing || still()) return;
  const marked = document.querySelector("[data-beat]");
  const passed = performance.now() - lastRefresh;
  const due = changed ? passed >= pause : marked && passed >= Math.max(pause, 1000 * Number(marked.dataset.beat));
  if (!due) return;
  try { lost(await refresh()); } catch (error) {
    lost(error instanceof Away ? error.message : AWAY);
    lastRefresh = performance.now();
    changed = true;
    pause = 2000;
  }
}

// One stream while the page is visible: browsers allow few connections to one server.
async function stay() {
  for (let wait = 500; ; wait = Math.min(8000, wait * 2)) {
    while (document.hidden || onItsWay()) await sleep(500);
    try {
      wait = await read() ? 250 : CROWDED;
      changed = true;
    } catch { lost(); }
    await sleep(wait);
  }
}

// Returns false if the server refuses a further stream.
async function read() {
  const leaving = new AbortController();
  const away = () => { if (document.hidden) leaving.abort(); };
  document.addEventListener("visibilitychange", away);
  addEventListener("pagehide", () => leaving.abort(), { once: true });
  try {
    const headers = last ? { "Last-Event-ID": last } : {};
    const response = await fetch(`${root}/api/events`, { headers, signal: leaving.signal, cache: "no-store" });
    if (response.status === 401) { again(); return false; }
    if (response.status === 503 || response.status === 429) return false; // the next refresh shows a worse error
    if (!response.ok) throw new Error(`answered ${response.status}`);
    changed = true;
    for await (const { id, event } of messages(response)) {
      last = id ?? last;
      if (event !== null) changed = true;
    }
    return true;
  } catch (error) {
    if (leaving.signal.aborted) return true;
    throw error;
  } finally {
    document.removeEventListener("visibilitychange", away);
  }
}
