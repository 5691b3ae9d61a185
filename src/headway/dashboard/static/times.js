// Relative times: "3 min ago", elapsed time of a run, time until a tick.
const UNITS = [[86400, "days"], [3600, "h"], [60, "min"], [1, "s"]];

// Must equal the wording of the server (model/explain/forecast.py).
export function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  for (const [size, unit] of UNITS) if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  return `${seconds} s`;
}

function relative(at, now) {
  if (Math.abs(now - at) < 1000) return "now";
  return at < now ? `${span(now - at)} ago` : `in ${span(at - now)}`;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function refreshTimes() {
  const now = Date.now();
  for (const one of document.querySelectorAll("time[data-relative]")) write(one, relative(Date.parse(one.dateTime), now));
  for (const one of document.querySelectorAll("[data-since]")) write(one, span(now - Number(one.dataset.since)));
  for (const one of document.querySelectorAll("[data-until]")) write(one, span(Number(one.dataset.until) - now));
}

export function tick() {
  // The browser sends its zone, and the server shows local times in it.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const root = document.documentElement.dataset.root || "/";
  const secure = location.protocol === "https:" ? "; Secure" : "";
  if (zone) document.cookie = `headway_zone=${encodeURIComponent(zone)}; Path=${root}; Max-Age=31536000; SameSite=Lax${secure}`;
  setInterval(refreshTimes, 1000);
}
