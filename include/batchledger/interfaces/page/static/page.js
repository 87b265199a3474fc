// What a page in Airflow's frame needs besides htmx: its look, its links into Airflow, a clock that keeps it up to date
// while a person sees it, and tables that answer while one types.
"use strict";

(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Airflow keeps its look where pages of the same origin can read it; "system" is what the machine says.
  function look() {
    const chosen = window.localStorage.getItem("theme");
    const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
    document.documentElement.dataset.look = isDark ? "dark" : "light";
  }

  look();
  dark.addEventListener("change", look);
  window.addEventListener("storage", look);

  // The address says what a table shows, so that it can be kept, sent and gone back to. ``typing`` is the timer between
  // the last key and the question; all keys of one word are one step of the back button.
  const PAUSE_MS = 200;
  let typing = 0;
  let hasTyped = false;

  function show(address, isNewStep) {
    window.clearTimeout(typing);
    typing = 0;
    if (address !== window.location.href) window.history[isNewStep ? "pushState" : "replaceState"](null, "", address);
    window.htmx.ajax("GET", address, { target: "#page", select: "#page", swap: "outerMorph" });
  }

  // Another filter or order begins on its first page.
  function addressOf(form, button) {
    const address = new URL(window.location.href);
    const fields = [...form.elements].filter((each) => each.name && each.type !== "hidden" && each.type !== "submit");
    for (const each of button ? [...fields, button] : fields) {
      if (each.value.trim()) address.searchParams.set(each.name, each.value);
      else address.searchParams.delete(each.name);
    }
    for (const name of ["page", "batches_page", "before"]) address.searchParams.delete(name);
    address.hash = "";
    return address.href;
  }

  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form?.matches("[data-live]")) return;
    window.clearTimeout(typing);
    typing = window.setTimeout(() => {
      show(addressOf(form), !hasTyped);
      hasTyped = true;
    }, PAUSE_MS);
  });

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-live]")) return;
    event.preventDefault();
    show(addressOf(event.target, event.submitter), !hasTyped || Boolean(event.submitter));
    hasTyped = false;
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-live]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    hasTyped = false;
    show(link.href, true);
    fill();
  });

  // Fields that stand outside of what is exchanged follow the address.
  function fill() {
    const asked = new URLSearchParams(window.location.search);
    for (const field of document.querySelectorAll("form[data-live] input")) field.value = asked.get(field.name) ?? "";
  }

  window.addEventListener("popstate", () => {
    if (!document.querySelector("form[data-live]")) return;
    hasTyped = false;
    fill();
    show(window.location.href, false);
  });

  // The frame may not leave itself, so Airflow's own document follows the link.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const way = window.parent.document.createElement("a");
    way.href = link.href;
    window.parent.document.body.append(way);
    way.click();
    way.remove();
  });

  function tick() {
    document.body.dispatchEvent(new CustomEvent("tick"));
  }

  // Nothing is replaced by an answer that is no page of ours, such as one of a proxy while Airflow starts again. Nor by
  // one to an older question: the clock may have asked before the last key.
  document.addEventListener("htmx:before:swap", (event) => {
    const { select, text, request } = event.detail.ctx;
    if (!select) return;
    const isOld = typing !== 0 || new URL(request.action, document.baseURI).search !== window.location.search;
    if (isOld || !text.includes("<main>")) event.preventDefault();
  });

  let seenAt = Date.now();
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.select) seenAt = Date.now();
    const outcome = event.detail.ctx.target;
    if (!outcome?.matches?.(".outcome") || outcome.querySelector("[hx-trigger]")) return;
    // The button that was pressed is gone; what came of it is where to go on.
    if (document.activeElement === document.body) outcome.focus({ preventScroll: true });
    // What was done may have changed what stands above.
    window.setTimeout(tick, 500);
  });

  const STALE_MS = 12000;
  let wasHidden = false;
  window.setInterval(() => {
    const isHidden = document.visibilityState !== "visible";
    if (wasHidden && !isHidden) seenAt = Date.now();
    wasHidden = isHidden;
    if (isHidden) return;
    const stale = document.getElementById("stale");
    if (stale && document.querySelector("#page[hx-get]")) stale.hidden = Date.now() - seenAt < STALE_MS;
    tick();
  }, 5000);
})();
