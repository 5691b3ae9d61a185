// Follows the log of a job. The server renders the end of the log; new lines come in a stream while the job runs
// and the page is visible, because browsers allow few connections.
import { messages } from "./stream.js";

const PAUSE = 1000; // before a stream that ended is opened again
const root = document.documentElement.dataset.root;
const log = document.getElementById("log");
const MOST = Math.max(5000, log.childElementCount); // if the user asked for more lines, that many stay
const follow = document.querySelector("#log-follow input");
// Must equal the format of the server (time_format.py).
const clock = new Intl.DateTimeFormat("en-GB", { timeZone: log.dataset.zone, hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit" });
let after = log.dataset.after;
let seen = log.dataset.status; // the status of the job when these lines were read
let stream = null;

const status = () => document.getElementById("next").dataset.status;
const runs = () => status() === "RUNNING";

const ended = () => ["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"].includes(status());

function look() {
  if (document.hidden) { stream?.abort(); return; }
  // The job stopped, for example was paused: fetch its last lines once, then stop following.
  if (stream && seen === "RUNNING" && !runs() && !ended()) stream.abort();
  if (!stream && (runs() || status() !== seen)) read();
}

async function read() {
  const began = status();
  stream = new AbortController();
  if (runs()) seen = began;
  try {
    const headers = { "Last-Event-ID": after };
    const response = await fetch(`${root}/api/jobs/${log.dataset.job}/live`, { headers, signal: stream.signal, cache: "no-store" });
    if (!response.ok) throw new Error(`answered ${response.status}`);
    await listen(response);
    seen = began;
  } catch { /* the server stopped, or the page was hidden */ }
  stream.abort();
  await new Promise((done) => setTimeout(done, PAUSE));
  stream = null;
  look();
}

async function listen(response) {
  for await (const { id, event, data } of messages(response)) {
    if (event === "lines") { after = id ?? after; add(JSON.parse(data)); }
    // The stream sends the log before the job. A job that does not run writes no further lines.
    if (event === "job" && !runs() && !ended()) return;
  }
}

function add(lines) {
  document.getElementById("log-none").hidden = true;
  log.append(...lines.map(line));
  while (log.childElementCount > MOST) log.firstElementChild.remove();
  toEnd();
}

function line({ at, level, message }) {
  const made = part("div", "line", "");
  made.dataset.level = level;
  const stamp = part("time", "at", clock.format(new Date(at)));
  stamp.dateTime = stamp.title = at;
  made.append(stamp, part("span", "level", level), part("span", "message", message));
  return made;
}

function part(name, kind, text) {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}

function toEnd() {
  if (follow.checked) log.scrollTop = log.scrollHeight;
}

log.addEventListener("wheel", () => requestAnimationFrame(() => {
  follow.checked = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
}), { passive: true });
follow.addEventListener("change", toEnd);
document.getElementById("log-follow").hidden = false;
document.addEventListener("headway:shown", look);
document.addEventListener("visibilitychange", look);
toEnd();
look();
