// The schedule editor: previews the next runs while the user types, and adds and removes steps in place.
const editor = document.getElementById("editor");
const preview = document.getElementById("preview");
const rows = document.getElementById("rows");
const TIMING = ["when", "cron", "interval", "times", "timezone", "start", "end"];
const PAUSE = 250; // after the last key
let waiting = null;
let asked = 0;

function timing() {
  const filled = new FormData(editor);
  const fields = new URLSearchParams(TIMING.map((name) => [name, filled.get(name) ?? ""]));
  if (editor.dataset.of) fields.set("of", editor.dataset.of);
  return fields;
}

// Responses may overtake each other: only that of the last request counts. A logged-out user is redirected.
async function look() {
  const mine = ++asked;
  try {
    const response = await fetch(`${editor.dataset.preview}?${timing()}`, { headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("[data-ahead]");
    if (mine !== asked) return;
    if (response.ok && !response.redirected && fresh) preview.replaceChildren(fresh);
    else if (response.redirected) preview.textContent = "You are logged out. Log in again in another tab, then continue here: your input is kept.";
  } catch {
    if (mine === asked) preview.textContent = "Headway does not answer.";
  }
}

function later() {
  clearTimeout(waiting);
  waiting = setTimeout(look, PAUSE);
}

// Shows only the fields of the chosen kind.
function choose() {
  for (const kind of ["when", "what"]) {
    const chosen = editor.elements[kind].value;
    for (const part of editor.querySelectorAll(`[data-${kind}]`)) part.hidden = part.dataset[kind] !== chosen;
  }
}

const steps = () => [...rows.querySelectorAll("[data-step]")];

// The server reads the numbers in the field names.
function number() {
  steps().forEach((step, n) => {
    step.querySelector("[data-number]").textContent = n + 1;
    for (const field of step.querySelectorAll("[name^='step-']")) {
      field.name = field.name.replace(/^step-[^-]+-/, `step-${n}-`);
      if (field.id) field.id = field.name;
    }
    step.querySelector("[data-remove]").value = n;
    for (const button of step.querySelectorAll("[data-place]")) button.value = `${button.dataset.place}-${n}`;
  });
}

function add() {
  rows.append(document.getElementById("empty-step").content.cloneNode(true));
  number();
  steps().at(-1).querySelector("input").focus();
}

function remove(step) {
  const next = step.nextElementSibling ?? step.previousElementSibling;
  step.remove();
  number();
  (next?.querySelector("input") ?? editor.querySelector("[data-add]")).focus();
}

editor.addEventListener("input", (event) => { if (TIMING.includes(event.target.name)) later(); });
editor.addEventListener("change", choose);
editor.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button?.matches("[data-add], [data-remove], [data-preview-button]")) return;
  event.preventDefault();
  if (button.matches("[data-add]")) add();
  else if (button.matches("[data-remove]")) remove(button.closest("[data-step]"));
  else look();
});
choose();
document.getElementById("wrong")?.focus();
