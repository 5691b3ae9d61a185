// Sends forms without leaving the page: the response replaces the page, and focus stays where it was. Forms that
// lead to another page, and forms that are shown again with errors, are marked data-plain and sent by the browser.
import { answer, leave, lost, wordsOf } from "./live.js";
import { refuse } from "./flash.js";

const LEAVING = 3000; // a form that leads to another page is not sent again for this long
const sending = new WeakSet();

export function sendQuietly() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.getAttribute("method") !== "post" || event.defaultPrevented) return;
    const plain = form.hasAttribute("data-plain");
    if (!plain || sending.has(form)) event.preventDefault();
    if (plain && !sending.has(form)) { sending.add(form); leave(); setTimeout(() => sending.delete(form), LEAVING); }
    if (!plain) send(form, event.submitter);
  });
  addEventListener("pageshow", () => { leave(-Infinity); for (const form of document.forms) sending.delete(form); });
}

// One submit at a time: a double click counts once.
export async function send(form, submitter = null) {
  if (sending.has(form)) return;
  sending.add(form);
  try {
    const fields = new URLSearchParams(new FormData(form, submitter));
    await post(form.getAttribute("action"), fields, form); // form.action may be a field of that name
  } finally {
    sending.delete(form);
  }
}

// Closes `form` on success; a refused form keeps its input.
export async function post(address, fields, form = null) {
  let response;
  try {
    response = await fetch(address, { method: "POST", body: fields, headers: { Accept: "text/html", "X-Headway-Script": "1" } });
  } catch {
    lost();
    return false;
  }
  const leads = response.headers.get("X-Headway-To");
  if (leads) { location.assign(leads); return true; }
  const here = new URL(response.url).pathname === location.pathname;
  if (response.redirected && !here) { location.assign(response.url); return true; }
  if (!response.ok) { refuse(await wordsOf(response)); return false; }
  if (!here) { location.assign(location.href); return true; }
  answer(await response.text(), form);
  return true;
}
