// @ts-check
/**
 * Keep the parts of a page up to date. An element with `data-part="NAME"` holds the text of `parts/NAME`; it is fetched
 * again when the stream of events names it. Everything that is shown was written by the server.
 */

/** @type {Map<string, {again: boolean, text: string}>} */
const fetching = new Map();

/** Ask the server for a part of this page.
 * @param {string} path
 * @returns {Promise<string>} */
export async function fetchPart(path) {
  const response = await fetch(`parts/${path}`, { headers: { accept: "text/html" } });
  if (!response.ok) throw new Error(`${response.status}`);
  return response.text();
}

/** Put new text in the place of old text, and keep what the reader had opened and where the focus was.
 * @param {Element} element
 * @param {string} text */
export function replaceText(element, text) {
  const open = [...element.querySelectorAll("details")].map((details) => details.open);
  const active = document.activeElement;
  const links = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll("a, button, summary, [tabindex]")]);
  const place = active instanceof HTMLElement && element.contains(active) ? links().indexOf(active) : -1;
  const page = new DOMParser().parseFromString(text, "text/html");
  element.replaceChildren(...page.body.childNodes);
  [...element.querySelectorAll("details")].forEach((details, at) => { if (at < open.length) details.open = open[at]; });
  if (place >= 0) links()[place]?.focus({ preventScroll: true });
}

/** Fetch one part again; calls while it is being fetched become one more.
 * @param {HTMLElement} element */
async function refresh(element) {
  const name = element.dataset.part ?? "";
  const state = fetching.get(name);
  if (state) { state.again = true; return; }
  const own = { again: false, text: "" };
  fetching.set(name, own);
  try {
    const text = await fetchPart(name);
    if (element.dataset.shown !== text) {
      replaceText(element, text);
      element.dataset.shown = text;
    }
    element.removeAttribute("aria-busy");
  } catch { /* the stream says when the server is there again */ }
  fetching.delete(name);
  if (own.again) refresh(element);
}

/** @type {EventSource | null} */
let source = null;

/** @param {string} text @param {string} kind */
function say(text, kind) {
  const line = document.getElementById("live");
  if (line && line.textContent !== text) { line.textContent = text; line.className = kind; }
}

function listen() {
  source?.close();
  source = new EventSource("events");
  source.addEventListener("open", () => say("Live", "good"));
  source.addEventListener("error", () => say("No connection to the viewer; trying again", "warn"));
  source.addEventListener("changed", (event) => {
    const names = new Set(/** @type {MessageEvent<string>} */ (event).data.split(" "));
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-part]"))) {
      if (names.has("all") || names.has(element.dataset.part ?? "")) refresh(element);
    }
    document.dispatchEvent(new CustomEvent("results-changed", { detail: names }));
  });
}

if (document.getElementById("live")) {
  // A browser opens six connections to a server at most: pages that nobody sees hold none.
  document.addEventListener("visibilitychange", () => { if (document.hidden) source?.close(); else listen(); });
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  listen();
}

const help = /** @type {HTMLDialogElement | null} */ (document.getElementById("keys"));

/** Whether a key is text that somebody types.
 * @param {KeyboardEvent} event */
export function isTyped(event) {
  const target = event.target;
  return event.ctrlKey || event.metaKey || event.altKey
    || (target instanceof HTMLElement && (target.isContentEditable || /^(input|select|textarea)$/i.test(target.tagName)));
}

document.addEventListener("keydown", (event) => {
  if (event.key === "?" && help && !isTyped(event)) {
    event.preventDefault();
    if (help.open) help.close(); else help.showModal();
  }
});
help?.querySelector("button")?.addEventListener("click", () => help.close());
document.getElementById("show-keys")?.addEventListener("click", () => help?.showModal());
