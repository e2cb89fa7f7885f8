// A file that is dropped anywhere on its field is the field's file; the field alone does without this.
"use strict";
(() => {
  for (const place of document.querySelectorAll(".drop")) {
    const input = place.querySelector("input[type=file]");
    const over = (on) => (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      place.classList.toggle("over", on);
    };
    place.addEventListener("dragover", over(true));
    place.addEventListener("dragleave", over(false));
    place.addEventListener("drop", (event) => {
      over(false)(event);
      if (event.dataTransfer?.files.length === 1) {
        input.files = event.dataTransfer.files;
        input.dispatchEvent(new Event("change", { bubbles: true }));
      }
    });
  }
})();
