// A table of any length of which only the visible lines are elements: sorting, filters and columns are in the address.
"use strict";

/**
 * Fill the elements of templates/table-parts.html.j2 and react to them.
 * @param {Table} data
 * @param {{link?: (row: number) => string, cell?: (column: Column, row: number) => string, pick?: (row: number) => void, search?: string[]}} options
 */
bakeoff.table = (data, { link, cell, pick, search }) => {
  const { make, $, state, change, onKey } = bakeoff;
  const MAX_NODES = 1700, MAX_COLUMNS = 60, MAX_CHOICES = 50, MAX_PRINTED = 1000;
  const form = $("filters"), region = $("region"), table = $("table"), body = table.tBodies[0];
  const by = new Map(data.columns.map((column) => [column.name, column]));
  const searched = (search || data.columns.filter((column) => !column.number).map((column) => column.name)).map((name) => by.get(name)).filter(Boolean);
  const before = make("tr", { class: "gap", "aria-hidden": "true" }, make("td")), after = before.cloneNode(true);
  /** @type {number[]} */ let visible = [];
  /** @type {Column[]} */ let columns = [];
  let current = -1, first = 0, height = 34, count = 30;

  /** @param {Column} column @param {number} row */
  const text = (column, row) => (column.own ? column.own[row] : column.at[row] < 0 ? "" : column.texts[column.at[row]]);

  // -- filters: a select where there are few values, else a field with suggestions

  for (const field of form.querySelectorAll("[data-column]")) {
    const column = by.get(field.dataset.column);
    if (!column || column.texts.length < 2) {
      field.closest("label").hidden = true;
      continue;
    }
    if (column.texts.length <= MAX_CHOICES) {
      const select = make("select", { name: field.name, "data-column": column.name }, make("option", { value: "" }, "all"), ...column.texts.map((value) => make("option", { value }, value)));
      field.replaceWith(select);
    } else {
      const list = make("datalist", { id: `list-${field.name}` });
      field.setAttribute("list", list.id);
      field.after(list);
      const suggest = () => {
        const part = field.value.toLowerCase();
        const values = column.texts.filter((value) => value.toLowerCase().includes(part)).slice(0, 20);
        list.replaceChildren(...values.map((value) => make("option", { value })));
      };
      field.addEventListener("focus", suggest);
      field.addEventListener("input", suggest);
    }
  }
  const fields = () => [...form.querySelectorAll("[data-column]")].filter((field) => by.has(field.dataset.column));

  /** Which distinct texts of a column have that part. @param {Column} column @param {string} part */
  const matches = (column, part) => column.texts.map((value) => value.toLowerCase().includes(part));

  function select() {
    const asked = state();
    const exact = fields().map((field) => [by.get(field.dataset.column), asked.get(field.name)]).filter(([, value]) => value)
      .map(([column, value]) => {
        const place = column.texts.indexOf(value);
        if (place >= 0) return (/** @type {number} */ row) => column.at[row] === place;
        const hits = matches(column, value.toLowerCase());
        return (/** @type {number} */ row) => hits[column.at[row]];
      });
    const words = (asked.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean).map((part) => {
      const hits = searched.map((column) => [column, matches(column, part)]);
      return (/** @type {number} */ row) => hits.some(([column, hit]) => hit[column.at[row]]);
    });
    const tests = [...exact, ...words];
    visible = [];
    for (let row = 0; row < data.rows; row++) if (tests.every((test) => test(row))) visible.push(row);
    const wanted = asked.get("sort") || "", down = wanted.startsWith("-"), column = by.get(wanted.slice(down ? 1 : 0));
    if (column) {
      const sign = down ? -1 : 1, at = column.at;
      // Lines without a value are last whichever way; among equals the order stays.
      visible.sort((a, b) => (at[a] < 0 ? 1 : 0) - (at[b] < 0 ? 1 : 0) || sign * (at[a] - at[b]) || a - b);
    }
  }

  // -- drawing

  function heads() {
    const asked = state(), names = (asked.get("columns") || "").split(",").filter((name) => by.has(name));
    const sort = asked.get("sort") || "", down = sort.startsWith("-"), sorted = sort.slice(down ? 1 : 0);
    columns = (names.length ? names : data.shown).slice(0, MAX_COLUMNS).map((name) => by.get(name));
    const cells = columns.map((column) => {
      const button = make("button", { type: "button" }, column.name);
      button.addEventListener("click", () => {
        change({ sort: column.name === sorted ? (down ? "" : `-${column.name}`) : column.name });
        update();
      });
      const order = column.name === sorted ? (down ? "descending" : "ascending") : null;
      return make("th", { scope: "col", class: column.number ? "r" : null, "aria-sort": order }, button);
    });
    table.tHead.replaceChildren(make("tr", {}, ...cells));
    for (const gap of [before, after]) gap.firstChild.colSpan = columns.length;
    count = Math.max(6, Math.min(60, Math.floor(MAX_NODES / (2 * columns.length + 3))));
  }

  /** @param {number} place in the order of visible lines */
  function line(place) {
    const row = visible[place];
    const cells = columns.map((column, k) => {
      const shown = text(column, row), flaky = column.flaky && column.flaky.includes(row);
      const address = k === 0 ? link && link(row) : cell && cell(column, row);
      const content = column.kind === "badge" && shown ? make("span", { class: `badge ${shown}` }, shown)
        : address && shown ? make("a", { href: address, title: column.kind === "run" ? shown : null, class: column.kind === "run" ? "id" : null }, column.kind === "run" ? shown.slice(-12) : shown)
        : make("bdi", {}, shown);
      const mark = flaky ? make("span", { class: "flaky", title: "flaky: some runs pass and some fail", role: "img", "aria-label": "flaky" }, "◐") : null;
      const shade = column.shade && column.shade[row] >= 0 ? `s${column.shade[row]}` : null;
      const look = [column.number ? "r" : null, shade].filter(Boolean).join(" ") || null;
      return k === 0 ? make("th", { scope: "row" }, content) : make("td", { class: look }, content, mark);
    });
    const tr = make("tr", { "aria-rowindex": place + 2, "aria-current": place === current ? "true" : null }, ...cells);
    tr.addEventListener("click", (event) => {
      if (event.target.closest("a")) return;
      move(place);
      if (pick) pick(row);
    });
    return tr;
  }

  function draw(all = false) {
    const last = Math.min(visible.length, all ? MAX_PRINTED : first + count);
    const from = all ? 0 : first;
    const lines = [];
    for (let place = from; place < last; place++) lines.push(line(place));
    before.firstChild.style.height = `${from * height}px`;
    after.firstChild.style.height = `${Math.max(0, visible.length - last) * height}px`;
    body.replaceChildren(before, ...lines, after);
    if (lines.length && lines[0].offsetHeight > 10) height = lines[0].offsetHeight;
  }

  /** Draw again when the lines that can be seen are not among those that are there. */
  function scrolled() {
    const top = Math.floor(region.scrollTop / height), room = Math.ceil(region.clientHeight / height);
    const spare = Math.max(2, Math.floor((count - room) / 2));
    if (top < first || top + room > first + count || !body.childElementCount) {
      first = Math.max(0, Math.min(top - spare, visible.length - count));
      draw();
    }
  }

  function update() {
    select();
    heads();
    [first, current] = [0, -1];
    region.scrollTop = 0;
    draw();
    table.setAttribute("aria-rowcount", String(visible.length + 1));
    const figures = new Intl.NumberFormat("en", { useGrouping: "min2" });
    $("count").textContent = visible.length === data.rows ? data.total : visible.length ? `${figures.format(visible.length)} of ${data.total}` : `nothing matches; ${data.total} in all`;
    const asked = state();
    for (const field of form.elements) if (field.name && field !== document.activeElement) field.value = asked.get(field.name) || "";
  }

  /** @param {number} place */
  function move(place) {
    if (!visible.length) return;
    current = Math.max(0, Math.min(place, visible.length - 1));
    const top = current * height, head = table.tHead.offsetHeight;
    if (top < region.scrollTop) region.scrollTop = top;
    else if (top + height > region.scrollTop + region.clientHeight - head) region.scrollTop = top + height - region.clientHeight + head;
    first = Math.max(0, Math.min(first, current, visible.length - 1));
    if (current >= first + count) first = current - Math.floor(count / 2);
    draw();
  }

  // -- what a reader does

  form.addEventListener("input", (event) => {
    change({ [event.target.name]: event.target.value });
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    change(Object.fromEntries([...state().keys()].map((name) => [name, ""])));
    setTimeout(update);
  });
  region.addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", scrolled);
  addEventListener("hashchange", update);
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw());
  onKey("j", "next line", () => move(current + 1));
  onKey("k", "line before", () => move(current - 1));
  onKey("Enter", "open the line", () => {
    if (current < 0) return;
    if (pick) pick(visible[current]);
    else if (link) location.href = link(visible[current]);
  });
  onKey("/", "search", () => form.elements.q.focus());
  onKey("f", "go to the filters", () => (fields().find((field) => !field.closest("label").hidden) || form.elements.q).focus());

  const chooser = $("columns");
  if (chooser) {
    chooser.addEventListener("toggle", () => {
      if (!chooser.open) return;
      const names = new Set(columns.map((column) => column.name));
      const boxes = data.columns.slice(0, 150).map((column) => {
        const box = make("input", { type: "checkbox", value: column.name });
        box.checked = names.has(column.name);
        return make("label", {}, box, column.name);
      });
      chooser.querySelector("div").replaceChildren(...boxes);
    });
    chooser.addEventListener("change", () => {
      const chosen = [...chooser.querySelectorAll("input:checked")].map((box) => box.value);
      change({ columns: chosen.join(",") === data.shown.join(",") ? "" : chosen.join(",") });
      update();
    });
  }
  update();
  return {
    /** The lines in their order now. */
    visible: () => visible,
    /** Mark the line of a row. @param {number} row */
    mark: (row) => move(visible.indexOf(row)),
    text,
    by,
  };
};
