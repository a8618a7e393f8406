// One run: its parts come from the file that it is in.
"use strict";
(async () => {
  const { take, make, $, onKey } = bakeoff;
  const { ids, chunk } = await take("ids");
  let wanted = -1; // a file may come when the reader has moved on

  /** @param {number} at */
  const address = (at) => `run.html#${encodeURIComponent(ids[at])}`;

  const asked = () => decodeURIComponent(location.hash.slice(1)) || ids[0];

  async function show() {
    const id = asked();
    const at = wanted = ids.indexOf(id);
    if (at < 0) {
      $("title").textContent = "No such run";
      $("run").replaceChildren(make("p", { class: "note warn" }, `There is no run called ${id} in this report.`));
      return;
    }
    $("title").textContent = id;
    document.title = id;
    for (const [link, other] of [["before", at - 1], ["after", at + 1]]) {
      $(link).hidden = !(other in ids);
      if (other in ids) $(link).href = address(other);
    }
    const parts = (await take(`details-${Math.floor(at / chunk)}`, true))[at % chunk];
    if (wanted !== at) return;
    $("run").replaceChildren(...parts.map(([title, html]) => {
      const section = make("section", { "data-part": title }, make("h2", {}, title));
      section.insertAdjacentHTML("beforeend", html);
      return section;
    }));
  }

  addEventListener("hashchange", show);
  for (const [key, does, step] of [["n", "next run", 1], ["p", "run before", -1]]) {
    onKey(key, does, () => { // from the address, because the links may still be those of the run before
      const next = ids.indexOf(asked()) + step;
      if (next in ids) location.hash = encodeURIComponent(ids[next]);
    });
  }
  await show();
})();
