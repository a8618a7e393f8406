// The report's pages: a table of runs, and the page of one run. Data comes in scripts that call
// bakeoff.rows and bakeoff.details, since a page opened from the file system may not fetch.
"use strict";
var bakeoff = (() => {
  const PAGE = matchMedia("(max-width: 40rem)").matches ? 25 : 100;
  const parts = [];
  const chunks = {};
  const $ = (id) => document.getElementById(id);

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  const join = (name) => parts.flatMap((part) => part[name]);
  const number = (value) => {
    if (value === null || value === undefined) return "-";
    if (typeof value !== "number") return String(value);
    // As `number` in text.py: four digits, whole numbers in full, commas from 10,000 on.
    const size = Math.abs(value), whole = Number.isInteger(value) || (size >= 1e4 && size < 1e9);
    if (whole) return size >= 1e4 ? Math.round(value).toLocaleString("en") : String(value);
    return size >= 1e9 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
  };
  const seconds = (value) => {
    if (value === null || value === undefined) return "-";
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    if (value < 60) return `${value.toFixed(1)} s`;
    if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
    return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  };
  // Arm, task and seed have columns of their own; the digest at the end of an id is enough to name a run.
  const short = (id) => (/__[0-9a-f]{12}$/.test(id) ? id.slice(-12) : id);
  const badge = (word) => make("span", { class: `badge ${word}` }, word);

  function columns() {
    const { cells, statuses, metrics } = bakeoff.names;
    const cell = join("cell").map((index) => cells[index]);
    const found = [
      { name: "run", values: join("id"), text: true },
      { name: "arm", values: cell.map((one) => one[0]), text: true },
      { name: "task", values: cell.map((one) => one[1]), text: true },
      { name: "seed", values: join("seed") },
    ];
    if (parts.some((part) => part.rollout)) {
      found.push({ name: "rollout", values: parts.flatMap((part) => part.rollout || part.id.map(() => 0)) });
    }
    found.push({ name: "status", values: join("status").map((index) => statuses[index]), text: true });
    found.push({ name: "time", values: join("wall"), show: seconds });
    metrics.forEach((name, index) => found.push({ name, values: parts.flatMap((part) => part.metrics[index]), metric: true }));
    return found;
  }

  // Numbers before words, nothing at the end whichever way; the plan's order among equals.
  function order(values, down) {
    const sign = down ? -1 : 1;
    return (a, b) => {
      const x = values[a], y = values[b];
      if (x === y) return a - b;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return (x < y ? -sign : sign) || a - b;
    };
  }

  function index() {
    const data = columns();
    const by = Object.fromEntries(data.map((column) => [column.metric ? `metric ${column.name}` : column.name, column]));
    const form = $("filters");
    const words = by.run.values.map((id, n) => `${id} ${by.arm.values[n]} ${by.task.values[n]} ${by.status.values[n]}`.toLowerCase());
    let sort = null, down = false, page = 0, visible = [];

    for (const name of ["arm", "task", "status"]) {
      for (const value of new Set(by[name].values)) form.elements[name].append(make("option", { value }, value));
    }
    const heads = data.map((column) => {
      const button = make("button", { type: "button" }, column.name);
      const head = make("th", { scope: "col", class: column.text ? null : "r" }, button);
      button.addEventListener("click", () => sortBy(column, sort === column && !down));
      return head;
    });
    $("table").tHead.append(make("tr", {}, ...heads));
    for (const [k, column] of data.entries()) {
      for (const [way, sign] of [["", ""], [", largest first", "-"]]) form.elements.sort.append(make("option", { value: `${sign}${k}` }, column.name + way));
    }

    function sortBy(column, downwards) {
      [sort, down] = [column, downwards];
      heads.forEach((head, k) => {
        if (data[k] === sort) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      form.elements.sort.value = sort ? `${down ? "-" : ""}${data.indexOf(sort)}` : "";
      update();
    }

    function update() {
      const needles = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = ["arm", "task", "status"].map((name) => [by[name].values, form.elements[name].value]).filter(([, value]) => value);
      visible = [];
      for (let n = 0; n < words.length; n++) {
        if (wanted.every(([values, value]) => values[n] === value) && needles.every((needle) => words[n].includes(needle))) visible.push(n);
      }
      if (sort) visible.sort(order(sort.values, down));
      page = 0;
      draw();
    }

    function line(n) {
      const cells = data.map((column) => {
        const value = column.values[n];
        if (column.name === "run" && !column.metric) {
          return make("th", { scope: "row" }, make("a", { class: "id", href: `run.html#${encodeURIComponent(value)}`, title: value }, short(value)));
        }
        const shown = column.name === "status" && !column.metric ? badge(value) : (column.show || number)(value);
        return make("td", { class: column.text ? null : "r", "data-name": column.name }, shown);
      });
      return make("tr", {}, ...cells);
    }

    function draw(all = false) {
      const from = all ? 0 : page * PAGE;
      const shown = all ? visible.slice(0, 1000) : visible.slice(from, from + PAGE);
      $("table").tBodies[0].replaceChildren(...shown.map(line));
      const count = visible.length.toLocaleString("en"), total = words.length.toLocaleString("en");
      $("count").textContent = visible.length === words.length ? `${total} runs` : `${count} of ${total} runs`;
      $("place").textContent = visible.length ? `${(from + 1).toLocaleString("en")} to ${(from + shown.length).toLocaleString("en")} of ${count}` : "no run matches";
      $("back").disabled = from === 0;
      $("forth").disabled = from + shown.length >= visible.length;
    }

    form.addEventListener("input", (event) => {
      const { name, value } = event.target;
      if (name === "sort") sortBy(value ? data[Number(value.replace("-", ""))] : null, value.startsWith("-"));
      else update();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(() => sortBy(null, false)));
    $("back").addEventListener("click", () => { page -= 1; draw(); });
    $("forth").addEventListener("click", () => { page += 1; draw(); });
    addEventListener("beforeprint", () => draw(true));
    addEventListener("afterprint", () => draw());
    update();
  }

  function page() {
    const ids = join("id");
    let wanted = -1; // a file of details may come when the reader has moved on
    const show = () => {
      const id = decodeURIComponent(location.hash.slice(1)) || ids[0];
      const n = wanted = ids.indexOf(id);
      if (n < 0) {
        $("title").textContent = "No such run";
        $("run").replaceChildren(make("p", { class: "note warn" }, `There is no run called ${id} in this report.`));
        return;
      }
      $("title").textContent = id;
      document.title = id;
      for (const [link, other] of [["before", n - 1], ["after", n + 1]]) {
        $(link).hidden = !(other in ids);
        if (other in ids) $(link).href = `run.html#${encodeURIComponent(ids[other])}`;
      }
      const chunk = Math.floor(n / bakeoff.names.chunk);
      const ready = () => wanted === n && $("run").replaceChildren(...sections(n, id, chunks[chunk][n % bakeoff.names.chunk]));
      if (chunks[chunk]) return ready();
      const script = make("script", { src: `assets/details-${chunk}.js` });
      script.addEventListener("load", ready);
      document.body.append(script);
    };
    addEventListener("hashchange", show);
    show();
  }

  function facts(lines) {
    return make("dl", { class: "facts" }, ...lines.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  const section = (title, ...content) => make("section", {}, make("h2", {}, title), ...content);

  function pairs(title, lines) {
    if (!lines.length) return null;
    const rows = lines.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "r" }, number(value))));
    return section(title, make("table", { class: "numbers" }, make("caption", {}, `${lines.length} values`), make("tbody", {}, ...rows)));
  }

  function sections(n, id, detail) {
    const { cells, statuses, metrics, others, files, home, omitted, start } = bakeoff.names;
    const part = parts.find((one) => one.id.includes(id));
    const row = part.id.indexOf(id);
    const [arm, task, ablation, params, flags] = cells[part.cell[row]];
    const known = [
      ["status", badge(statuses[part.status[row]])], ["arm", arm], ["task", task], ["seed", String(part.seed[row])],
      ["rollout", part.rollout ? String(part.rollout[row]) : null], ["ablation", ablation || null],
      ["flags", flags.length ? flags.join(" ") : null], ["started", "at" in detail ? new Date((start + detail.at) * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : null],
      ["time", seconds(part.wall[row])], ["exit code", "exit" in detail ? String(detail.exit) : null],
    ].filter(([, value]) => value !== null);
    const values = metrics.map((name, k) => [name, part.metrics[k][row]]).concat(others.map((name, k) => [name, detail.m[k]])).filter(([, value]) => value !== null);
    const found = [section("Facts", facts(known))];
    if (detail.error) found.push(section("Error", make("pre", {}, detail.error)));
    found.push(make("div", { class: "columns" }, pairs("Metrics", values), pairs("Parameters", Object.entries(params).map(([name, value]) => [name, typeof value === "object" && value !== null ? JSON.stringify(value) : value]))));
    if (detail.series) found.push(section("Series", ...Object.entries(detail.series).map(([name, [steps, y]]) => chart(name, steps, y))));
    if (detail.tries) found.push(section("Attempts", tries(detail.tries)));
    for (const [name, text] of Object.entries(detail.logs || {})) found.push(section(name, make("pre", { tabindex: "0" }, text)));
    if ("files" in detail) found.push(section("Files", artifacts(files[detail.files], detail.place || `${home}/${encodeURIComponent(id)}`)));
    const missing = omitted.length ? `This report has too many runs to hold everything: ${omitted.join(", ")} may be missing here. ` : "";
    found.push(section("More", make("p", { class: "hint" }, missing, "In a terminal: ", make("code", {}, `bakeoff show ${id}`), " ", make("code", {}, `bakeoff logs ${id}`), " ", make("code", {}, `bakeoff reproduce ${id}`))));
    return found;
  }

  function tries(lines) {
    const head = ["attempt", "status", "time", "exit code", "error"].map((name) => make("th", { scope: "col" }, name));
    const rows = lines.map(([attempt, status, wall, exit, error]) => make("tr", {}, make("td", {}, String(attempt)), make("td", {}, badge(status)), make("td", {}, seconds(wall)), make("td", {}, number(exit)), make("td", { class: "error" }, error.trim().split("\n").pop())));
    return make("div", { class: "scroll" }, make("table", {}, make("caption", {}, "Every try is kept; the last one counts"), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
  }

  function artifacts(names, place) {
    const link = (name) => make("li", {}, make("a", { href: `${place}/${name.split("/").map(encodeURIComponent).join("/")}` }, name));
    return make("div", {}, make("ul", {}, ...names.map(link)), make("p", { class: "hint" }, "Links lead into the edition's directory; they work as long as the report lies beside it."));
  }

  // Round values between two ends, four to nine of them.
  function ticks(low, high) {
    const power = 10 ** Math.floor(Math.log10((high - low) / 4));
    const step = power * ([5, 2].find((size) => (high - low) / (size * power) >= 4) || 1);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  function chart(name, steps, values) {
    const [width, height, left, bottom, top, right] = [640, 240, 62, 30, 12, 14];
    const finite = values.filter((value) => value !== null);
    let low = Math.min(...finite), high = Math.max(...finite);
    if (!finite.length) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    const first = steps[0], span = steps[steps.length - 1] - first || 1;
    const x = (step) => left + ((step - first) / span) * (width - left - right);
    const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - bottom - top);
    const svg = (tag, attributes, text) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      if (text !== undefined) element.textContent = text;
      return element;
    };
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name} by step` });
    for (const value of ticks(low, high)) {
      drawing.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
      drawing.append(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
    }
    for (const step of ticks(first, first + span)) {
      drawing.append(svg("text", { x: x(step), y: height - 10, "text-anchor": x(step) > width - 40 ? "end" : "middle" }, number(step)));
    }
    let path = "", pen = "M";
    values.forEach((value, k) => {
      if (value === null) { pen = "M"; return; }
      path += `${pen}${x(steps[k]).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    });
    drawing.append(svg("path", { class: "curve", d: path || "M0 0" }));
    return make("figure", { class: "chart" }, make("h3", {}, `${name} by step`), drawing);
  }

  return { names: {}, rows: (part) => parts.push(part), details: (chunk, runs) => { chunks[chunk] = runs; }, index, page };
})();
