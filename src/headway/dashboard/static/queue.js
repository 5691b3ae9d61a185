// Moving jobs: by dragging a row, or by Alt and an arrow on it. Both send the form that the buttons of the row send.
import { post, send } from "./forms.js";
import { refresh } from "./live.js";

const MOVES = { ArrowUp: ["up", "top"], ArrowDown: ["down", "bottom"] };
let last = Promise.resolve(); // one move at a time: each needs the version that the previous one returned
let dragged = null;

const rowOf = (element) => element?.closest?.("tr[data-job]") ?? null;
const formOf = (row) => row?.querySelector("form.moves") ?? null;
const shown = (id) => document.querySelector(`tr[data-job="${CSS.escape(id)}"]`);

function then(id, act) {
  last = last.then(act).catch(() => {}).then(() => shown(id)?.focus({ preventScroll: false }));
}

// --- keys -------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  const moves = MOVES[event.key];
  const row = rowOf(event.target);
  if (!moves || !event.altKey || event.ctrlKey || event.metaKey || !formOf(row)) return;
  event.preventDefault();
  const id = row.dataset.job;
  const wanted = moves[event.shiftKey ? 1 : 0];
  then(id, async () => {
    const form = formOf(shown(id));
    const button = form?.querySelector(`[data-move="${wanted}"]`);
    if (button && !button.disabled) await send(form, button);
  });
});

// --- dragging ---------------------------------------------------------------------------------------------------

function unmark() {
  for (const row of document.querySelectorAll(".drop-before, .drop-after")) row.classList.remove("drop-before", "drop-after");
}

// During a drag the page is not refreshed: rows would move away under the pointer.
document.addEventListener("dragstart", (event) => {
  const row = event.target.classList?.contains("grip") ? rowOf(event.target) : null;
  if (!formOf(row)) return;
  dragged = row.dataset.job;
  document.body.dataset.dragging = dragged;
  row.classList.add("dragged");
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", dragged);
  event.dataTransfer.setDragImage(row, 12, 12);
});

document.addEventListener("dragend", () => {
  delete document.body.dataset.dragging;
  shown(dragged ?? "")?.classList.remove("dragged");
  unmark();
  dragged = null;
});

const isLower = (row, event) => { const box = row.getBoundingClientRect(); return event.clientY > box.top + box.height / 2; };

document.addEventListener("dragover", (event) => {
  const row = rowOf(event.target);
  if (dragged === null || !formOf(row) || row.dataset.job === dragged) return;
  event.preventDefault();
  unmark();
  row.classList.add(isLower(row, event) ? "drop-after" : "drop-before");
});

document.addEventListener("drop", (event) => {
  const row = rowOf(event.target);
  if (dragged === null || !formOf(row) || row.dataset.job === dragged) return;
  event.preventDefault();
  const id = dragged;
  const where = [isLower(row, event) ? "after" : "before", row.dataset.job];
  then(id, async () => {
    const form = formOf(shown(id));
    if (!form) return;
    const fields = new URLSearchParams(new FormData(form));
    fields.set(...where);
    await post(form.getAttribute("action"), fields);
  });
});

// A button may be disabled at the end of the list: the focus then moves to its row.
document.addEventListener("headway:shown", () => {
  const button = document.activeElement;
  if (button?.disabled) rowOf(button)?.focus();
});

// A bulk action applies to the number of jobs that the user read: the number stays while the sheet is open.
document.addEventListener("toggle", (event) => {
  const offer = event.target.closest?.("[data-offer]");
  offer?.toggleAttribute("data-keep", event.target.open);
  if (offer && !event.target.open) refresh().catch(() => {});
}, true);

// If the number has changed, the sheet is closed, so that the user reads the new number first.
document.addEventListener("headway:shown", () => {
  const refused = document.querySelector("#said [data-kind='count_mismatch']:not([data-seen])");
  if (!refused) return;
  refused.dataset.seen = "1";
  for (const sheet of document.querySelectorAll("[data-offer] details[open]")) sheet.open = false;
});
