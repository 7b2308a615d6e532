// @ts-check
// On a narrow screen the tabs of a job are a strip that scrolls: scroll the current one into view.

const strip = document.querySelector(".job-tabs");
const open = strip?.querySelector("[aria-current]");
if (strip instanceof HTMLElement && open instanceof HTMLElement) {
  strip.scrollLeft = open.offsetLeft - strip.offsetLeft - (strip.clientWidth - open.offsetWidth) / 2;
}
