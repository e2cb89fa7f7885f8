// Shows moments in the viewer's zone; UTC stays on hover. What comes later says so with the event "specweb:shown".
"use strict";
(() => {
  const format = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
  function localise(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.textContent = format.format(at);
    }
  }
  localise(document);
  document.addEventListener("specweb:shown", (event) => localise(event.target));
})();
