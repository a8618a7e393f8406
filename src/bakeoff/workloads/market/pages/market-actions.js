// Filters the logs of actions, all of which are on the page.
"use strict";
{
  const form = document.getElementById("filters"), tally = document.getElementById("found");
  const logs = [...document.querySelectorAll("details.log")];
  function apply() {
    const filter = Object.fromEntries(new FormData(form)), words = filter.words.toLowerCase();
    const rowwise = words || filter.action || filter.good;
    let shown = 0, runs = 0;
    for (const log of logs) {
      const own = (!filter.arm || log.dataset.arm === filter.arm) && (!filter.task || log.dataset.task === filter.task);
      let hits = 0;
      if (own) for (const row of log.querySelectorAll("tbody tr")) {
        const fits = (!filter.action || row.dataset.action === filter.action) && (!filter.good || row.dataset.good === filter.good)
          && (!words || row.textContent.toLowerCase().includes(words));
        row.hidden = !fits;
        hits += fits;
      }
      log.hidden = !own || (rowwise && !hits);
      if (rowwise && hits) log.open = true;
      if (!log.hidden) { shown += hits; runs += 1; }
    }
    tally.textContent = `actions: ${shown}, runs: ${runs}`;
  }
  form.addEventListener("input", apply);
  const first = logs.find(log => log.querySelector("tbody"));
  if (first) first.open = true;
  form.addEventListener("submit", event => event.preventDefault());
  apply();
}
