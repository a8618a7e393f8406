// @ts-check
/** The page of one run, which the part of the address behind # names. What it holds is fetched when it is opened. */
import { fetchPart, isTyped, replaceText } from "./live.js";

const place = /** @type {HTMLElement} */ (document.getElementById("run"));
const title = /** @type {HTMLElement} */ (document.getElementById("title"));
let shown = "";

/** @param {boolean} force */
async function show(force) {
  const id = decodeURIComponent(location.hash.slice(1));
  try {
    const text = await fetchPart(`run?id=${encodeURIComponent(id)}`);
    if (id !== decodeURIComponent(location.hash.slice(1)) || (!force && text === shown)) return;
    replaceText(place, text);
    shown = text;
    place.removeAttribute("aria-busy");
    const named = place.querySelector("[data-run]");
    title.textContent = document.title = (named instanceof HTMLElement && named.dataset.run) || "Run";
  } catch { /* the next event fetches again */ }
}

addEventListener("hashchange", () => show(true));
document.addEventListener("results-changed", () => {
  // A run that has ended does not change while somebody reads it.
  if (!shown || place.querySelector("[data-open]")) show(false);
});
document.addEventListener("keydown", (event) => {
  if (isTyped(event)) return;
  const link = event.key === "j" ? "next" : event.key === "k" ? "prev" : "";
  if (link) /** @type {HTMLElement | null} */ (place.querySelector(`a[rel=${link}]`))?.click();
});
show(true);
