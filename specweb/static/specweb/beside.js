// What other tools report is asked for when its place comes near; without this the link to the list stays.
"use strict";
(() => {
  async function fill(place) {
    try {
      const answer = await fetch(place.dataset.beside, { credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      place.replaceChildren(...parsed.body.childNodes);
    } catch {
      // The link stays.
    }
  }
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      fill(entry.target);
    }
  }, { rootMargin: "300px" });
  for (const place of document.querySelectorAll("[data-beside]")) near.observe(place);
})();
