// The matrix of tasks and arms: a cell leads to its runs.
"use strict";
bakeoff.take("matrix").then((data) => {
  const task = data.columns[0];
  const name = (row) => task.texts[task.at[row]];
  bakeoff.table(data, {
    link: (row) => `runs.html#${new URLSearchParams({ task: name(row) })}`,
    cell: (column, row) => column.kind === "cell" ? `runs.html#${new URLSearchParams({ arm: column.name, task: name(row) })}` : "",
  });
});
