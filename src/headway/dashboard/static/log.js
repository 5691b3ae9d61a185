// The log of a job as it is written, and buttons that copy. The server shows the end of the log; from there on new
// lines come in a stream, for as long as the job runs and the page is looked at: browsers allow few connections.
const PAUSE = 1000; // before a stream that ended is asked for again
const root = document.documentElement.dataset.root;
const log = document.getElementById("log");
const MOST = Math.max(5000, log.childElementCount); // whoever asked for more lines keeps as many
const follow = document.querySelector("#log-follow input");
let after = log.dataset.after;
let seen = log.dataset.status; // what is shown of the log is as of then
let stream = null;

const status = () => document.getElementById("next").dataset.status;
const runs = () => status() === "RUNNING";

const ended = () => ["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"].includes(status());

function look() {
  if (document.hidden) { stream?.abort(); return; }
  // It was paused, say: its last lines are fetched once more, and then nobody waits for further ones.
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
    await pump(response.body.getReader());
    seen = began;
  } catch { /* the server went, or the page was hidden */ }
  stream.abort();
  await new Promise((done) => setTimeout(done, PAUSE));
  stream = null;
  look();
}

async function pump(reader) {
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = messages.pop();
    messages.forEach(take);
    // What there is of a log comes before the job itself. Of one that does not run nothing more comes.
    if (!runs() && !ended() && messages.some((message) => message.startsWith("event: job"))) return;
  }
}

function take(message) {
  const event = /^event: (.*)$/m.exec(message)?.[1];
  if (event !== "lines") return;
  after = /^id: (\d+)$/m.exec(message)?.[1] ?? after;
  add(JSON.parse(/^data: (.*)$/m.exec(message)[1]));
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
  made.append(part("span", "at", at.slice(11, 19)), part("span", "level", level), part("span", "message", message));
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

// --- copying -------------------------------------------------------------------------------------------------------

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest(".copy").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
