// Buttons that copy: for what is shown once, and for what is meant to be pasted elsewhere.
const STAYS = 3000;

function write(text, element) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Away from this machine and without TLS a browser gives no clipboard to scripts, but it copies what is selected.
  getSelection().selectAllChildren(element);
  return document.execCommand("copy") ? Promise.resolve() : Promise.reject(new Error("not copied"));
}

function offer(text, what, put) {
  const button = document.createElement("button");
  const told = document.createElement("span");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${what}`);
  told.setAttribute("role", "status");
  told.className = "note";
  const box = document.createElement("span");
  box.className = "copying";
  box.append(told, button);
  put(box);
  button.addEventListener("click", async () => {
    try {
      await write(text.textContent.trim(), text);
      told.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      told.textContent = "Not allowed: it is selected, copy it by hand";
    }
    setTimeout(() => { told.textContent = ""; }, STAYS);
  });
}

export function offerCopies() {
  for (const one of document.querySelectorAll(".copy")) {
    const head = one.querySelector(".head");
    offer(one.querySelector("code"), head.textContent.trim(), (box) => head.append(box));
  }
  for (const secret of document.querySelectorAll("pre.secret")) offer(secret, "it", (box) => secret.after(box));
}
