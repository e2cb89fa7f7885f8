// A button beside each text that is there to be copied. Without this script the text is selected by one click.
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
