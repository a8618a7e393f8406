// Runs of different arms on the same task and seed, side by side.
"use strict";
(async () => {
  const { take, make, $, state, change, onKey } = bakeoff;
  const [data, { ids, chunk }] = await Promise.all([take("disagreements"), take("ids")]);
  if (!data.rows) return;
  const find = (name) => data.columns.find((column) => column.kind === name || column.name === name);
  const task = find("task"), seed = data.columns.find((column) => column.name === "seed" && column.kind !== "cell");
  const text = (column, row) => (column.at[row] < 0 ? "" : column.texts[column.at[row]]);
  const closed = new Set(["Run", "Parameters", "Files", "Provenance"]);
  let shown = -1, drawing = 0;

  /** The line that the address names. */
  function named() {
    const asked = state();
    if (!asked.has("at")) return -1;
    for (let row = 0; row < data.rows; row++) {
      if (text(task, row) === asked.get("at") && (!seed || text(seed, row) === (asked.get("seed") || ""))) return row;
    }
    return -2;
  }

  /** Show a disagreement and say so in the address. @param {number} row @param {number[]} [runs] */
  async function show(row, runs) {
    const chosen = runs || data.beside[row];
    shown = row;
    const usual = chosen.join() === data.beside[row].join();
    change({ at: text(task, row), seed: seed ? text(seed, row) : "", runs: usual ? "" : chosen.map((at) => ids[at]).join(",") });
    list.mark(row);
    $("which").textContent = seed && text(seed, row) ? `${text(task, row)}, seed ${text(seed, row)}` : text(task, row);
    const place = list.visible().indexOf(row);
    $("previous").disabled = place <= 0;
    $("next").disabled = place < 0 || place + 1 >= list.visible().length;
    const mine = ++drawing;
    $("beside").setAttribute("aria-busy", "true");
    const parts = await Promise.all(chosen.map(async (at) => (await take(`details-${Math.floor(at / chunk)}`, true))[at % chunk]));
    if (mine !== drawing) return;
    const panes = chosen.map((at, k) => {
      const select = make("select", { "aria-label": `Run ${k + 1}` }, ...data.runs[row].map(([other, said]) => make("option", { value: other, selected: other === at }, said)));
      select.addEventListener("change", () => show(row, chosen.map((each, j) => (j === k ? Number(select.value) : each))));
      return make("div", { class: "pane" }, select, " ", make("a", { href: `run.html#${encodeURIComponent(ids[at])}` }, "run"));
    });
    const titles = [...new Set(parts.flatMap((own) => own.map(([title]) => title)))];
    const order = new Map(titles.map((title, k) => [title, closed.has(title) ? k + 100 : k]));
    titles.sort((a, b) => order.get(a) - order.get(b));
    const sections = titles.map((title) => {
      const cells = parts.map((own, k) => {
        const found = own.find(([name]) => name === title);
        const pane = make("div", { class: "pane", role: "group", "aria-label": `${title}: ${data.runs[row].find(([at]) => at === chosen[k])[1]}` });
        if (found) pane.innerHTML = found[1]; // made by Jinja with everything escaped that a run wrote
        else pane.append(make("p", { class: "hint" }, "nothing"));
        return pane;
      });
      const details = make("details", { open: !closed.has(title), "data-part": title }, make("summary", {}, title), make("div", { class: "panes", tabindex: "0", role: "group", "aria-label": title }, ...cells));
      details.addEventListener("toggle", () => (details.open ? closed.delete(title) : closed.add(title)));
      return details;
    });
    $("beside").className = `beside n${chosen.length}`;
    $("beside").replaceChildren(make("div", { class: "panes heads" }, ...panes), ...sections);
    $("beside").setAttribute("aria-busy", "false");
  }

  /** @param {number} by */
  function step(by) {
    const rows = list.visible(), place = rows.indexOf(shown);
    const next = rows[place < 0 ? 0 : place + by];
    if (next !== undefined) show(next);
  }

  const list = bakeoff.table(data, { pick: (row) => show(row) });
  onKey("n", "next disagreement", () => step(1));
  onKey("p", "disagreement before", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("previous").addEventListener("click", () => step(-1));

  function follow() {
    const row = named();
    if (row === -2) {
      $("which").textContent = `${state().get("at")}: the arms do not disagree here, or this task is not in the report`;
      $("beside").replaceChildren();
      return;
    }
    const runs = (state().get("runs") || "").split(",").map((id) => ids.indexOf(id)).filter((at) => at >= 0);
    if (row < 0 || row !== shown || runs.length) show(row < 0 ? list.visible()[0] ?? 0 : row, runs.length ? runs : undefined);
  }
  addEventListener("hashchange", follow);
  follow();
})();
