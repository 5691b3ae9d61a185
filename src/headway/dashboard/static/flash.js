// The flash message of the last action, in the corner so that nothing on the page moves. A success disappears by
// itself, a refusal stays until the user closes it. `m` moves the focus there, Escape closes it.
const LEAVES = 10_000;
const LEAVES_WITH_UNDO = 30_000; // long enough to press Undo without haste
let timer = null;
let cameFrom = null; // the element that had the focus before the message

const place = () => document.getElementById("said");
const shown = () => place()?.querySelector(".banner") ?? null;
const held = (banner) => banner.matches(":hover") || banner.contains(document.activeElement);

function made(name, attributes, text) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function leaveLater(banner) {
  if (banner.matches(".bad, [data-kind='more']")) return;
  timer = setTimeout(() => {
    if (held(banner)) leaveLater(banner); else dismiss();
  }, banner.querySelector("form") ? LEAVES_WITH_UNDO : LEAVES);
}

function dress() {
  clearTimeout(timer);
  const banner = shown();
  if (!banner) return;
  if (!banner.querySelector("[data-dismiss]")) banner.append(made("button", { type: "button", class: "dismiss", "data-dismiss": "", "aria-label": "Close this message" }, "×"));
  leaveLater(banner);
}

// Screen readers read changes only: a message that is in the page from the start is inserted again.
export function attend() {
  const region = place()?.querySelector("[role='status']");
  if (!region) return;
  const words = [...region.childNodes];
  region.replaceChildren();
  setTimeout(() => { if (!shown()) region.append(...words); dress(); }, 50);
  place().addEventListener("click", (event) => { if (event.target.closest("[data-dismiss]")) dismiss(); });
  place().addEventListener("focusin", ({ relatedTarget }) => { if (relatedTarget && !place().contains(relatedTarget)) cameFrom = relatedTarget; });
}

// Replaces the message by that of a response. Focus inside the old message moves into the new one.
export function renew(fresh) {
  const inside = place().contains(document.activeElement);
  const [old, now] = [place(), fresh].map((one) => one.querySelector("[role='status']"));
  const refused = fresh.querySelector("[role='alert']");
  place().querySelector("[role='alert']")?.remove();
  old.replaceChildren(...[...(now?.childNodes ?? [])].map((node) => document.importNode(node, true)));
  if (refused) place().append(document.importNode(refused, true));
  dress();
  if (inside && !reach()) giveBack();
}

// Shows a refusal if the response has no page to show.
export function refuse(words) {
  const fresh = document.createElement("div");
  const banner = fresh.appendChild(made("div", { class: "banner bad", role: "alert" }, ""));
  banner.append(made("span", { class: "words" }, words));
  renew(fresh);
}

function giveBack() {
  (cameFrom?.isConnected ? cameFrom : document.getElementById("main")).focus({ preventScroll: true });
}

// Returns false if there is no message.
export function dismiss() {
  const banner = shown();
  if (!banner) return false;
  clearTimeout(timer);
  const inside = banner.contains(document.activeElement);
  banner.remove();
  if (inside) giveBack();
  return true;
}

export function reach() {
  const button = shown()?.querySelector("button");
  button?.focus();
  return Boolean(button);
}
