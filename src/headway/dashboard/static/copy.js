// Copy buttons, for texts that are shown once and for snippets.
const STAYS = 3000;

function write(text, element) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Over plain HTTP from another machine a browser gives scripts no clipboard, but it copies the selection.
  getSelection().selectAllChildren(element);
  return document.execCommand("copy") ? Promise.resolve() : Promise.reject(new Error("not copied"));
}

function offer(text, what, put) {
  const button = document.createElement("button");
  const status = document.createElement("span");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${what}`);
  status.setAttribute("role", "status");
  status.className = "note";
  const box = document.createElement("span");
  box.className = "copying";
  box.append(status, button);
  put(box);
  button.addEventListener("click", async () => {
    try {
      await write(text.textContent.trim(), text);
      status.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      status.textContent = "The browser refused: the text is selected, copy it by hand";
    }
    setTimeout(() => { status.textContent = ""; }, STAYS);
  });
}

export function offerCopies() {
  for (const one of document.querySelectorAll(".copy")) {
    const head = one.querySelector(".head");
    offer(one.querySelector("code"), head.textContent.trim(), (box) => head.append(box));
  }
  for (const secret of document.querySelectorAll("pre.secret")) offer(secret, "it", (box) => secret.after(box));
}
