// Looks after the part of a page that htmx polls: asks less in a hidden tab, keeps what its reader opened, marked or has in
// focus, says aloud only what matters, and tells when the server can't be reached instead of standing still.
"use strict";
(() => {
  const place = document.querySelector("[data-live]");
  if (!place) return;
  const said = document.getElementById("live-said"), trouble = document.getElementById("live-trouble");
  const HIDDEN_MS = 30000, SLOWEST_MS = 30000, FIRST_WAIT_MS = 2000;
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  let tag = place.dataset.tag, next = 0, wait = FIRST_WAIT_MS, failures = 0, since = null, stopped = false;

  const mine = (event) => event.target === place;

  function telling(...parts) {
    if (!parts.length) {
      trouble.hidden = true;
      trouble.replaceChildren();
    } else if (trouble.textContent !== parts.map((p) => p.textContent ?? p).join("")) {
      trouble.replaceChildren(...parts);
      trouble.hidden = false;
    }
  }

  function answered() {
    failures = 0;
    wait = FIRST_WAIT_MS;
    next = document.hidden ? Date.now() + HIDDEN_MS : 0;
    telling();
  }

  function failed(status) {
    if (status === 401) {
      stopped = true;
      const link = Object.assign(document.createElement("a"), { href: place.dataset.login, textContent: "Log in again" });
      telling("You are logged out. ", link, " to go on watching.");
      return;
    }
    if (status === 403 || status === 404) {
      stopped = true;
      telling("There is nothing to watch here any more. Load the page again to see what became of it.");
      return;
    }
    failures += 1;
    if (failures === 1) since = new Date();
    next = Date.now() + (document.hidden ? HIDDEN_MS : wait);
    wait = Math.min(wait * 2, SLOWEST_MS);
    // A single lost answer is no event.
    if (failures > 1) telling(`${status ? `The server answers with an error (${status})` : "The server can’t be reached"} since ${clock.format(since)}; trying on. What stands here is from before.`);
  }

  function reading() {
    const selection = getSelection();
    return selection && !selection.isCollapsed && place.contains(selection.anchorNode);
  }

  // htmx counts every answer below 400 as new content, one that says "unchanged" too.
  place.addEventListener("htmx:configRequest", (event) => {
    if (!mine(event)) return;
    if (stopped || Date.now() < next) event.preventDefault();
    else event.detail.headers["If-None-Match"] = tag;
  });
  place.addEventListener("htmx:beforeOnLoad", (event) => {
    const status = event.detail.xhr.status;
    if (mine(event) && status >= 200 && status < 400) answered();
  });
  let kept = null;
  place.addEventListener("htmx:beforeSwap", (event) => {
    if (!mine(event)) return;
    if (event.detail.xhr.status === 304 || reading()) event.detail.shouldSwap = false;
    if (!event.detail.shouldSwap) return;
    tag = event.detail.xhr.getResponseHeader("ETag") || "";
    kept = {
      open: [...place.querySelectorAll("details[open][id]")].map((e) => e.id),
      scrolled: [...place.querySelectorAll(".scroll[id], pre[id]")].map((e) => [e.id, e.scrollLeft, e.scrollTop, e.scrollHeight - e.clientHeight - e.scrollTop < 8]),
    };
  });
  place.addEventListener("htmx:afterSwap", (event) => {
    if (!mine(event) || !kept) return;
    for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, left, top, atEnd] of kept.scrolled) {
      const element = document.getElementById(id);
      if (element) [element.scrollLeft, element.scrollTop] = [left, atEnd ? element.scrollHeight : top];
    }
    kept = null;
    place.dispatchEvent(new CustomEvent("specweb:shown", { bubbles: true }));
    const say = place.querySelector("[data-say]")?.dataset.say;
    if (say && said && said.textContent !== say) said.textContent = say;
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) place.addEventListener(name, (event) => { if (mine(event)) failed(0); });
  place.addEventListener("htmx:responseError", (event) => { if (mine(event)) failed(event.detail.xhr.status); });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      next = Math.max(next, Date.now() + HIDDEN_MS);
    } else if (!stopped && !failures) {
      next = 0;
      htmx.trigger(place, "look");
    }
  });
})();
