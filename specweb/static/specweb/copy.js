// A button beside each text that is there to be copied, and beside each file whose text is. Without this script the text is
// selected by one click, and the file downloaded.
"use strict";
(() => {
  const SAID_MS = 2000;

  function select(text) {
    getSelection().selectAllChildren(text);
  }

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text.textContent);
      return true;
    } catch {
      // There is no clipboard on a page without TLS, unless it comes from this machine.
      select(text);
      return document.execCommand("copy");
    }
  }

  function asText(address) {
    return fetch(address, { credentials: "same-origin" }).then((answer) => {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.text();
    });
  }

  async function fileCopied(address) {
    const text = asText(address);
    if (navigator.clipboard) {
      // Handed over before it is there: some browsers take nothing from a page that has waited.
      const later = { "text/plain": text.then((t) => new Blob([t], { type: "text/plain" })) };
      await navigator.clipboard.write([new ClipboardItem(later)]);
      return;
    }
    const area = Object.assign(document.createElement("textarea"), { className: "hidden-text", value: await text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("no clipboard");
  }

  for (const link of document.querySelectorAll("a[data-copy-from]")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "button quiet", textContent: "Copy report" });
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      button.textContent = await fileCopied(link.href).then(() => "Copied", () => "Not copied: download it");
      setTimeout(() => { button.textContent = "Copy report"; }, SAID_MS);
    });
    link.before(button, " ");
  }

  for (const text of document.querySelectorAll("[data-copy]")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      const done = await copied(text);
      if (!done) select(text);
      button.textContent = done ? "Copied" : "Selected: copy with the keyboard";
      setTimeout(() => { button.textContent = "Copy"; }, SAID_MS);
    });
    text.before(button);
  }
})();
