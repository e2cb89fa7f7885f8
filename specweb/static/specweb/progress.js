// Keeps the part of the page that changes while a job runs; a change of state brings the whole page anew.
"use strict";
(() => {
  const place = document.getElementById("progress");
  if (!place) return;
  const EVERY_MS = 2500, SLOWEST_MS = 30000;
  let tag = place.dataset.tag, wait = EVERY_MS;

  async function look() {
    try {
      const answer = await fetch(place.dataset.url, { headers: { "If-None-Match": tag }, cache: "no-store", credentials: "same-origin" });
      if (answer.status === 200) {
        const fragment = await answer.text();
        if (answer.headers.get("X-Job-State") !== place.dataset.state) {
          location.reload();
          return;
        }
        tag = answer.headers.get("ETag") || "";
        // What its reader opened stays open.
        const open = [...place.querySelectorAll("details[open][id]")].map((e) => e.id);
        place.innerHTML = fragment;
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
        place.dispatchEvent(new CustomEvent("specweb:shown", { bubbles: true }));
      } else if (answer.status === 404) {
        return;
      }
      wait = EVERY_MS;
    } catch {
      wait = Math.min(wait * 2, SLOWEST_MS); // the server is away for a while
    }
    setTimeout(look, document.hidden ? SLOWEST_MS : wait);
  }
  setTimeout(look, wait);
})();
