// Forms are sent without leaving the page: the answer is shown in its place, and focus stays where it was. Those that
// lead to another page, and those that come back to be mended, are marked data-plain and sent as browsers do.
import { answer } from "./live.js";

export function sendQuietly() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.getAttribute("method") !== "post" || form.hasAttribute("data-plain") || event.defaultPrevented) return;
    event.preventDefault();
    send(form, event.submitter);
  });
}

export async function send(form, submitter = null) {
  const fields = new URLSearchParams(new FormData(form, submitter));
  await post(form.getAttribute("action"), fields, form); // form.action may be a field of that name
}

// `form`, if there is one, is closed once it is done; what was refused is there to be mended.
export async function post(address, fields, form = null) {
  let response;
  try {
    response = await fetch(address, { method: "POST", body: fields, headers: { Accept: "text/html", "X-Headway-Script": "1" } });
  } catch {
    const banner = document.getElementById("lost");
    if (banner) banner.hidden = false;
    return false;
  }
  const leads = response.headers.get("X-Headway-To");
  if (leads) { location.assign(leads); return true; }
  const text = await response.text();
  const there = new URL(response.url);
  if (there.pathname !== location.pathname) { location.assign(response.redirected ? response.url : location.href); return true; }
  answer(text);
  if (!document.querySelector("#said .banner.bad")) form?.closest("details.ask")?.removeAttribute("open");
  return true;
}
