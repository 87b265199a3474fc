// What a page in Airflow's frame needs besides htmx: its look, its links into Airflow, and a clock that lets it be
// up to date while somebody sees it.
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

  // An answer that is no page of ours, as of a proxy while Airflow is started again, replaces nothing.
  document.addEventListener("htmx:before:swap", (event) => {
    const { select, text } = event.detail.ctx;
    if (select && !text.includes("<main>")) event.preventDefault();
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
