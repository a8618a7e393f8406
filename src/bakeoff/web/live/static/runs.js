// @ts-check
/**
 * The table of runs. The server sorts and filters; only the rows on the screen, and a few around them, are in the page.
 * Filters, order and columns are the URL's, so a view can be sent to somebody.
 */
import { fetchPart, isTyped } from "./live.js";

const WINDOW = 60;
const form = /** @type {HTMLFormElement} */ (document.getElementById("filters"));
const port = /** @type {HTMLElement} */ (document.getElementById("port"));
const sizer = /** @type {HTMLElement} */ (document.getElementById("sizer"));
const table = /** @type {HTMLTableElement} */ (document.getElementById("table"));
const count = /** @type {HTMLElement} */ (document.getElementById("count"));

/** @type {URLSearchParams} */
let query = new URLSearchParams(location.hash.slice(1));
let total = 0, start = 0, active = -1, height = 30, asked = 0, busy = false, again = false;

/** The number of the first row that should be in the page. */
function wanted() {
  const first = Math.floor(port.scrollTop / height);
  const seen = Math.ceil(port.clientHeight / height);
  return Math.max(0, Math.min(first - Math.floor((WINDOW - seen) / 2), total - WINDOW));
}

/** Fetch the rows around what is visible. Calls while rows are on their way become one more. */
async function load() {
  if (busy) { again = true; return; }
  busy = true;
  const from = wanted(), number = ++asked;
  const fields = new URLSearchParams(query);
  fields.set("start", String(from));
  fields.set("count", String(WINDOW));
  try {
    const page = new DOMParser().parseFromString(await fetchPart(`rows?${fields}`), "text/html");
    const fresh = page.querySelector("table");
    if (fresh && number === asked) show(fresh, from);
    else if (!fresh) count.textContent = page.body.textContent;
  } catch { /* the next event fetches again */ }
  busy = false;
  if (again) { again = false; load(); }
}

/** @param {HTMLTableElement} fresh @param {number} from */
function show(fresh, from) {
  total = Number(fresh.dataset.total);
  count.textContent = fresh.dataset.count ?? "";
  const names = [...fresh.querySelectorAll("button")].map((button) => button.dataset.sort);
  for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll("input[name=column]"))) {
    box.checked = names.includes(box.value);
  }
  const [head, body] = [fresh.tHead, fresh.tBodies[0]];
  if (head && table.tHead && head.innerHTML !== table.tHead.innerHTML) {
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.sort : undefined;
    table.tHead.replaceChildren(...head.childNodes);
    if (focused) table.tHead.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }
  const held = table.tBodies[0].contains(document.activeElement);
  table.tBodies[0].replaceChildren(...body.childNodes);
  table.setAttribute("aria-rowcount", String(total + 1));
  start = from;
  height = table.tBodies[0].rows[0]?.offsetHeight || height;
  sizer.style.height = `${total * height + (table.tHead?.offsetHeight ?? 0) + 2}px`;
  table.style.transform = `translateY(${start * height}px)`;
  if (table.tHead) table.tHead.style.transform = `translateY(${port.scrollTop - start * height}px)`;
  mark(held);
}

/** Mark the row that keys have chosen. @param {boolean} focus */
function mark(focus) {
  for (const row of table.tBodies[0].rows) row.classList.toggle("active", Number(row.dataset.row) === active);
  const link = /** @type {HTMLElement | null} */ (table.querySelector("tr.active a"));
  if (focus) link?.focus({ preventScroll: true });
}

/** Choose another row by keyboard. @param {number} by */
function step(by) {
  if (!total) return;
  active = active < 0 ? Math.floor(port.scrollTop / height) : Math.max(0, Math.min(total - 1, active + by));
  const top = active * height, head = table.tHead?.offsetHeight ?? 0;
  if (top < port.scrollTop) port.scrollTop = top;
  if (top + height + head > port.scrollTop + port.clientHeight) port.scrollTop = top + height + head - port.clientHeight;
  mark(true);
}

/** Take a changed query over into the address and the table. */
function apply() {
  history.replaceState(null, "", query.size ? `#${query}` : location.pathname);
  port.scrollTop = 0;
  active = -1;
  asked += 1; // rows that are on their way are of another query
  load();
}

/** @param {string} name @param {string} value */
function set(name, value) {
  if (value) query.set(name, value); else query.delete(name);
}

function fill() {
  for (const name of ["q", "arm", "task", "status", "seed"]) {
    const field = /** @type {HTMLInputElement | null} */ (form.elements.namedItem(name));
    if (field) field.value = query.get(name) ?? "";
  }
}

form.addEventListener("input", (event) => {
  const field = /** @type {HTMLInputElement} */ (event.target);
  if (field.name === "column") {
    const chosen = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("input[name=column]:checked")]);
    set("columns", chosen.map((each) => each.value).join(","));
  } else set(field.name, field.value);
  apply();
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(() => { query = new URLSearchParams(); fill(); apply(); }));
table.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("button[data-sort]") : null;
  if (!(button instanceof HTMLElement)) return;
  const column = button.dataset.sort ?? "";
  set("sort", query.get("sort") === column ? `-${column}` : query.get("sort") === `-${column}` ? "" : column);
  apply();
});
addEventListener("hashchange", () => { query = new URLSearchParams(location.hash.slice(1)); fill(); apply(); });
let waiting = 0;
port.addEventListener("scroll", () => {
  if (table.tHead) table.tHead.style.transform = `translateY(${port.scrollTop - start * height}px)`;
  const first = Math.floor(port.scrollTop / height), last = first + Math.ceil(port.clientHeight / height);
  if ((first < start + 5 && start > 0) || (last > start + WINDOW - 5 && start + WINDOW < total)) {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(load);
  }
});
document.addEventListener("results-changed", (event) => {
  const names = /** @type {CustomEvent<Set<string>>} */ (event).detail;
  if (names.has("runs") || names.has("all")) load();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isTyped(event) && !event.ctrlKey) { /** @type {HTMLElement} */ (event.target).blur(); return; }
  if (isTyped(event)) return;
  const open = /** @type {HTMLAnchorElement | null} */ (table.querySelector("tr.active a"));
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "Enter" && open && document.activeElement === document.body) open.click();
  else if (event.key === "/") { event.preventDefault(); /** @type {HTMLElement} */ (form.elements.namedItem("q")).focus(); }
  else if (event.key === "f") { event.preventDefault(); /** @type {HTMLElement} */ (form.elements.namedItem("status")).focus(); }
});
fill();
load();
