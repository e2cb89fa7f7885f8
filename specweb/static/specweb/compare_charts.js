// Brings the charts of Compare into its page when they come near; without this script a link leads to the same on a page of their own.
"use strict";
(() => {
  const place = document.getElementById("charts");
  if (!place || !place.dataset.from) return;

  async function bring() {
    const answer = await fetch(place.dataset.from);
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const charts = page.getElementById("charts");
    if (!charts) throw new Error("no charts");
    place.replaceChildren(...document.importNode(charts, true).childNodes);
    specwebPlots.look(place);
  }

  new IntersectionObserver((entries, observer) => {
    if (!entries.some((e) => e.isIntersecting)) return;
    observer.disconnect();
    bring().then(
      () => { place.dataset.came = "yes"; },
      () => { place.querySelector(".charts-state").textContent = "The charts could not be loaded. The link shows them on a page of their own."; },
    );
  }, { rootMargin: "600px 0px" }).observe(place);
})();
