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

  window.setInterval(() => {
    if (document.visibilityState === "visible") document.body.dispatchEvent(new CustomEvent("tick"));
  }, 5000);
})();
