// Sets the theme before the first paint: a classic script in the head. "auto" follows the system.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** @returns {"auto" | "light" | "dark"} the user's choice */
  function chosen() {
    try {
      const value = localStorage.getItem("paceline.theme");
      return value === "light" || value === "dark" ? value : "auto";
    } catch {
      return "auto";
    }
  }

  function apply() {
    const choice = chosen();
    const theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("paceline:theme", { detail: theme }));
  }

  apply();
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
  document.addEventListener("DOMContentLoaded", () => {
    const current = document.querySelector(`#theme-switch input[value="${chosen()}"]`);
    if (current) current.checked = true;
    document.getElementById("theme-switch")?.addEventListener("change", (event) => {
      try {
        localStorage.setItem("paceline.theme", event.target.value);
      } catch {
        // Storage may be blocked; then the system's theme applies.
      }
      apply();
    });
  });
})();
