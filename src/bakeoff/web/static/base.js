// What all pages share: data from script files, the state in the address, keys. Classic scripts and not modules, because
// a page that was opened from the file system may not load modules. No number is formatted here: texts come from Python.
"use strict";

/** @typedef {{name: string, texts: string[], at: number[], number: boolean, kind?: string, own?: string[], flaky?: number[], shade?: number[]}} Column */
/** @typedef {{columns: Column[], shown: string[], rows: number, total: string}} Table */

var bakeoff = (() => {
  /** @type {Map<string, {promise: Promise<any>, resolve: (value: any) => void, reject: (reason: any) => void}>} */
  const gifts = new Map();

  /** Return the place where the value of that name arrives. @param {string} name */
  function gift(name) {
    let place = gifts.get(name);
    if (!place) {
      let resolve = (/** @type {any} */ _) => {}, reject = resolve;
      const promise = new Promise((done, failed) => { [resolve, reject] = [done, failed]; });
      place = { promise, resolve, reject };
      gifts.set(name, place);
    }
    return place;
  }

  /** Called by data files. @param {string} name @param {string} text deflated JSON in base64 */
  function give(name, text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    gift(name).resolve(new Response(inflated).json());
  }

  /** Wait for a value; with `file`, load the file that gives it if nobody did. @param {string} name @param {boolean} [file] */
  function take(name, file = false) {
    if (file && !gifts.has(name)) {
      const script = make("script", { src: `assets/${name}.js` });
      script.addEventListener("error", () => gift(name).reject(new Error(`assets/${name}.js is missing`)));
      document.head.append(script);
    }
    return gift(name).promise;
  }

  /** @param {string} tag @param {Record<string, any>} [attributes] @param {...any} children */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  /** The element with that id, which the page has. @param {string} id @returns {any} */
  const $ = (id) => document.getElementById(id);

  /** What the address says behind its #. */
  const state = () => new URLSearchParams(location.hash.slice(1));

  /** Change parts of the address; empty values go. @param {Record<string, string>} changes @param {boolean} [step] a step back in the browser's history */
  function change(changes, step = false) {
    const next = state();
    for (const [name, value] of Object.entries(changes)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    const address = `${location.pathname}${location.search}#${next}`;
    if (step) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }

  /** @type {Map<string, {does: string, act: () => void}>} */
  const keys = new Map();

  /** Let a key do something. @param {string} key @param {string} does for the list of keys @param {() => void} act */
  const onKey = (key, does, act) => keys.set(key, { does, act });

  function help() {
    let dialog = $("keys");
    if (!dialog) {
      const lines = [...keys].map(([key, { does }]) => make("div", {}, make("dt", {}, make("kbd", {}, key)), make("dd", {}, does)));
      const close = make("button", { type: "button" }, "Close");
      dialog = make("dialog", { id: "keys", "aria-label": "Keys" }, make("h2", {}, "Keys"), make("dl", { class: "facts" }, ...lines), close);
      close.addEventListener("click", () => dialog.close());
      document.body.append(dialog);
    }
    if (!dialog.open) return dialog.showModal();
    dialog.close();
    // Its button keeps the focus until the next frame, and keys that are pressed before would be the button's.
    dialog.querySelector("button").blur();
  }

  onKey("?", "show or hide this list", help);

  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (event.key === "Enter" && target.matches("a, button, summary")) return;
    const known = keys.get(event.key);
    if (known) {
      event.preventDefault();
      known.act();
    }
  });

  for (const button of document.querySelectorAll(".keys-button")) button.addEventListener("click", help);

  return { give, take, make, $, state, change, onKey, table: /** @type {any} */ (null) };
})();
