// @ts-check
// On a narrow screen the tabs of a job are a strip that scrolls: the one that is open is brought into sight.

const strip = document.querySelector(".job-tabs");
const open = strip?.querySelector("[aria-current]");
if (strip instanceof HTMLElement && open instanceof HTMLElement) {
  strip.scrollLeft = open.offsetLeft - strip.offsetLeft - (strip.clientWidth - open.offsetWidth) / 2;
}
