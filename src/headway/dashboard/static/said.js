// What became of the last action, as a message in the corner: it moves nothing on the page. What was done leaves by
// itself, what was refused stays until somebody closes it. `m` goes there, Escape closes it.
const LEAVES = 10_000;
const LEAVES_WITH_UNDO = 30_000; // nobody should have to hurry to take something back
let timer = null;
let cameFrom = null; // who had the focus before the message

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

// Words that are there from the beginning are read to nobody: they are put in once more where changes are read out.
export function attend() {
  const region = place()?.querySelector("[role='status']");
  if (!region) return;
  const words = [...region.childNodes];
  region.replaceChildren();
  setTimeout(() => { if (!shown()) region.append(...words); dress(); }, 50);
  place().addEventListener("click", (event) => { if (event.target.closest("[data-dismiss]")) dismiss(); });
  place().addEventListener("focusin", ({ relatedTarget }) => { if (relatedTarget && !place().contains(relatedTarget)) cameFrom = relatedTarget; });
}

// The message of a page that came as an answer. Whoever was in the old one finds themselves in the new one.
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

// Nothing came back that could be shown in place of the page.
export function refuse(words) {
  const fresh = document.createElement("div");
  const banner = fresh.appendChild(made("div", { class: "banner bad", role: "alert" }, ""));
  banner.append(made("span", { class: "words" }, words));
  renew(fresh);
}

function giveBack() {
  (cameFrom?.isConnected ? cameFrom : document.getElementById("main")).focus({ preventScroll: true });
}

// False: there is no message.
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
