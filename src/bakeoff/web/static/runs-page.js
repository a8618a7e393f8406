// The table of all runs.
"use strict";
bakeoff.take("runs").then((data) => {
  const run = data.columns.find((column) => column.kind === "run");
  bakeoff.table(data, { link: (row) => `run.html#${encodeURIComponent(run.texts[run.at[row]])}` });
});
