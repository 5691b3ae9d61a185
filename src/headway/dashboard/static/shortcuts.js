// Keys: `g` and a letter goes to a page, `/` searches, `j` and `k` walk rows, `m` goes to the message, `?` helps.
import { dismiss, reach } from "./flash.js";

let going = -Infinity;

export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") { shut(event.target); return; }
    if (typing(event.target)) return;
    if (performance.now() - going < 1500) { going = -Infinity; if (go(event.key)) event.preventDefault(); return; }
    const act = ACTS[event.key];
    if (act && act() !== false) event.preventDefault();
  });
  document.querySelector("[data-help]")?.addEventListener("click", (event) => { event.preventDefault(); help(); });
}

const typing = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;

// The sheet or the message that has the focus; without focus, all of them.
function shut(from) {
  const inside = from.closest("details.ask[open]");
  const open = inside ? [inside] : typing(from) ? [] : document.querySelectorAll("details.ask[open]");
  for (const one of open) one.open = false;
  inside?.querySelector("summary").focus();
  if (!inside && !typing(from)) dismiss();
}

function go(key) {
  const link = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
  link?.click();
  return link !== null;
}

function help() {
  const sheet = document.getElementById("help");
  if (sheet.open) return;
  sheet.showModal();
  document.getElementById("help-title").focus();
}

function walk(step) {
  const rows = [...document.querySelectorAll("main tbody tr[tabindex]")];
  if (!rows.length) return false;
  const at = rows.indexOf(document.activeElement?.closest("tr"));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))] ?? rows[0];
  row.focus();
}

function open() {
  const row = document.activeElement;
  if (row?.nodeName !== "TR") return false;
  row.querySelector("a[href]")?.click();
}

function search() {
  const field = document.querySelector("main [data-search]");
  field?.focus();
  return field !== null;
}

const ACTS = { g: () => { going = performance.now(); }, "?": help, m: reach, j: () => walk(1), k: () => walk(-1), Enter: open, "/": search };
