// Times that pass: "3 min ago", how long something runs, how long until a tick.
const UNITS = [[86400, "days"], [3600, "h"], [60, "min"], [1, "s"]];

// As the server says it (model/explain/forecast.py).
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
  // The server shows local times in the zone that the browser tells it.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const root = document.documentElement.dataset.root || "/";
  const secure = location.protocol === "https:" ? "; Secure" : "";
  if (zone) document.cookie = `headway_zone=${encodeURIComponent(zone)}; Path=${root}; Max-Age=31536000; SameSite=Lax${secure}`;
  setInterval(refreshTimes, 1000);
}
