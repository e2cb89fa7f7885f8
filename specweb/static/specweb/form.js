// The experiment form: faults beside their fields while one types, marks of modes, and nothing typed is lost when the page goes away.
"use strict";
(() => {
  const place = document.getElementById("form-place");
  const preview = document.getElementById("preview");
  if (!place || !preview) return;
  const DRAFT = "specweb:new-experiment", SAVE_AFTER_MS = 400;
  const form = () => document.getElementById("experiment-form");
  const byMode = new Map([...document.querySelectorAll("#marks [data-mode]")].map((e) => [e.dataset.mode, e]));
  let touched = new Set(), saveLater = 0;

  // --- an arm looks like its mode ---
  function dressArms() {
    for (const row of place.querySelectorAll(".form-row.arms")) {
      const mode = byMode.get(row.querySelector("select[name$='-mode']")?.value);
      row.classList.remove(...[...row.classList].filter((c) => c.startsWith("m-")), "speculates", "with-model", "with-ngram");
      row.querySelector(".row-head .mark")?.remove();
      if (!mode) continue;
      row.classList.add(`m-${mode.dataset.mode}`, ...mode.dataset.kind.split(" ").filter(Boolean));
      row.querySelector(".row-head b").prepend(mode.querySelector("svg").cloneNode(true));
    }
  }

  // A draft model that nobody typed (a new arm is given one) steps aside for a mode without one, and comes back.
  function fitDraftModel(row) {
    const model = row.querySelector("input[name$='-draft_model']");
    if (row.classList.contains("with-ngram") && model.value && !touched.has(model.name)) {
      model.dataset.aside = model.value;
      model.value = "";
    } else if (row.classList.contains("with-model") && !model.value) model.value = model.dataset.aside || "";
  }

  // --- faults that the preview found, beside the fields that were touched ---
  function showFaults() {
    const found = new Map();
    for (const item of preview.querySelectorAll("[data-field]")) {
      const said = found.get(item.dataset.field);
      found.set(item.dataset.field, said ? `${said}; ${item.dataset.message}` : item.dataset.message);
    }
    for (const slot of place.querySelectorAll(".fault[id$='-fault']")) {
      const field = document.getElementById(slot.id.slice(0, -"-fault".length));
      if (!field) continue;
      const message = found.get(field.name) || "";
      if (message && !touched.has(field.name) && !slot.textContent) continue;
      slot.textContent = message;
      field.closest(".field").classList.toggle("bad", message !== "");
      if (message) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
      if (message) field.closest("details")?.setAttribute("open", "");
    }
  }

  // --- while a button's answer is on its way, nobody types into a form that is about to go ---
  let pressed = null;
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt !== form()) return;
    pressed = document.activeElement;
    form().inert = true;
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt.id !== "experiment-form" || !form()) return;
    form().inert = false;
    // What stays as it was keeps its focus, unless the answer put it elsewhere.
    if (pressed?.isConnected && document.activeElement === document.body) pressed.focus();
  });
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.detail.xhr.getResponseHeader("HX-Redirect")) forget();
  });
  // What was opened stays open when the same thing comes anew.
  let opened = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    opened = [...event.detail.target.querySelectorAll("details[open][id]")].map((e) => e.id);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    if (event.detail.target === preview) showFaults();
    else if (event.detail.target === place) {
      touched = new Set();
      dressArms();
      save();
    }
  });
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) document.addEventListener(name, failed);

  function failed(event) {
    const status = event.detail.xhr?.status || 0;
    const words = status ? `The service answered with an error (${status}). ` : "The service can’t be reached just now. ";
    if (event.detail.elt === preview) {
      const line = document.createElement("p");
      line.className = "preview-line s-warning";
      line.textContent = `${words}The preview comes again with your next change.`;
      preview.replaceChildren(line);
    } else {
      const line = document.createElement("p");
      line.className = "s-warning";
      line.textContent = `${words}What you typed is still here: try again in a moment.`;
      document.getElementById("form-notice").replaceChildren(line);
      line.scrollIntoView({ block: "nearest" });
    }
  }

  // --- what was typed outlives a reload or a slip of the back button, in this window ---
  const pairs = () => [...new FormData(form())].filter(([name, value]) => name !== "csrfmiddlewaretoken" && typeof value === "string");
  function save() {
    clearTimeout(saveLater);
    try {
      sessionStorage.setItem(DRAFT, JSON.stringify(pairs()));
    } catch {
      // A full or closed store only means that nothing is kept.
    }
  }
  function forget() {
    clearTimeout(saveLater);
    sessionStorage.removeItem(DRAFT);
  }
  function draft() {
    try {
      return JSON.parse(sessionStorage.getItem(DRAFT) || "null");
    } catch {
      return null;
    }
  }
  const same = (one, other) => JSON.stringify(one.filter(([name]) => name !== "key")) === JSON.stringify(other.filter(([name]) => name !== "key"));

  function offerDraft() {
    const kept = draft();
    if (!kept || same(kept, pairs())) return;
    const notice = document.getElementById("draft-notice");
    notice.textContent = `${notice.dataset.words} `;
    notice.append(button("Take it up", () => sendPlainly(kept, "resume")), " ", button("Drop it", () => {
      forget();
      notice.hidden = true;
    }));
    notice.hidden = false;
  }
  function button(words, action) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "small";
    made.textContent = words;
    made.addEventListener("click", action);
    return made;
  }
  // As a browser without scripts would: the answer is a page.
  function sendPlainly(fields, action) {
    const made = document.createElement("form");
    made.method = "post";
    made.action = form().action;
    const token = ["csrfmiddlewaretoken", form().elements.csrfmiddlewaretoken.value];
    for (const [name, value] of [...fields, token, ["do", action]]) {
      const input = document.createElement("textarea");
      input.name = name;
      input.value = value;
      made.append(input);
    }
    made.hidden = true;
    document.body.append(made);
    made.submit();
  }
  document.addEventListener("click", (event) => {
    const plain = event.target.closest?.("button[data-plain]");
    if (!plain) return;
    event.preventDefault();
    sendPlainly(pairs(), plain.value);
  });

  // The preview's button stands outside the form, where htmx doesn't see which one was pressed.
  document.addEventListener("click", (event) => {
    if (event.target.id !== "do-submit-here") return;
    event.preventDefault();
    document.getElementById("do-submit").click();
  });

  place.addEventListener("input", (event) => {
    touched.add(event.target.name);
    const arm = event.target.name?.endsWith("-mode") && event.target.closest(".form-row.arms");
    if (arm) {
      dressArms();
      fitDraftModel(arm);
      // Another mode makes faults of what stands in the arm's other fields.
      for (const field of arm.querySelectorAll("[name]")) if (field.value) touched.add(field.name);
    }
    clearTimeout(saveLater);
    saveLater = setTimeout(save, SAVE_AFTER_MS);
  });
  function selectLine(area, number) {
    const lines = area.value.split("\n");
    const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
    area.setSelectionRange(start, start + (lines[number - 1] || "").length);
    area.scrollTop = (area.scrollHeight / lines.length) * Math.max(0, number - 5);
  }
  // A link to a field inside something closed opens it first.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#f-']");
    const field = link && document.getElementById(link.getAttribute("href").slice(1));
    if (!field) return;
    event.preventDefault();
    for (let e = field.closest("details"); e; e = e.parentElement.closest("details")) e.open = true;
    field.focus();
    field.scrollIntoView({ block: "center" });
    if (link.dataset.line) selectLine(field, Number(link.dataset.line));
  });

  dressArms();
  offerDraft();
})();
