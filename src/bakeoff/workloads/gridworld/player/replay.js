// Plays recorded episodes side by side, in every element with the class gridworld-replay.
"use strict";
for (const root of document.querySelectorAll(".gridworld-replay")) {
  const { episodes, colours, speed: framesPerSecond, playing: plays } = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const [button, slider, speed] = ["button", "input", "select"].map((name) => root.querySelector(name));
  const colour = (look) => colours[look.charCodeAt(0) - 65];
  const add = (parent, tag, text = "") => Object.assign(parent.appendChild(document.createElement(tag)), { textContent: text });
  const views = episodes.map((episode) => {
    const place = add(root.querySelector(".rooms"), "section");
    add(place, "h3", episode.agent || "agent");
    add(place, "p", `${episode.level}, task ${episode.task}`);
    const state = add(place, "p"), hearts = add(place, "p"), canvas = add(place, "canvas");
    hearts.className = "hearts";
    const columns = episode.walls[0].length, rows = episode.walls.length;
    const cell = Math.min(40, Math.floor(440 / Math.max(columns, rows)));
    canvas.width = columns * cell;
    canvas.height = rows * cell;
    const table = add(place, "table");
    for (const [, , look, does] of episode.stations) {
      const row = add(table, "tr"), sign = add(add(row, "td"), "span", look);
      sign.className = "look";
      sign.style.background = colour(look);
      add(row, "td", does);
    }
    return { episode, state, hearts, cell, pen: canvas.getContext("2d") };
  });
  const draw = ({ episode, state, hearts, cell, pen }, number) => {
    const step = Math.min(number, episode.frames.length - 1);
    const [agentX, agentY, won, carried, cooling] = episode.frames[step];
    state.textContent = `step ${step} of ${episode.horizon}, carries ${carried.map((r) => "r" + r).join(" ") || "nothing"}`;
    hearts.textContent = "♥".repeat(won) + (won ? ` ${won}` : "no heart yet");
    episode.walls.forEach((row, y) => [...row].forEach((kind, x) => {
      pen.fillStyle = kind === "." ? "#f4f1ea" : "#3c3a36";
      pen.fillRect(x * cell, y * cell, cell - 1, cell - 1);
    }));
    pen.font = `600 ${Math.max(9, cell / 2)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const [x, y, look] of episode.stations) {
      const waits = cooling.includes(look);
      pen.fillStyle = colour(look);
      pen.fillRect(x * cell, y * cell, cell - 1, cell - 1);
      if (waits) {
        pen.fillStyle = "#3c3a36";
        pen.fillRect(x * cell + 3, y * cell + 3, cell - 7, cell - 7);
      }
      pen.fillStyle = waits ? "#ffffff" : "#222222";
      pen.fillText(look, (x + 0.5) * cell, (y + 0.5) * cell);
    }
    pen.fillStyle = "#1d1d1f";
    pen.beginPath();
    pen.arc((agentX + 0.5) * cell - 0.5, (agentY + 0.5) * cell - 0.5, cell / 3, 0, 2 * Math.PI);
    pen.fill();
  };
  const last = Math.max(...episodes.map((episode) => episode.frames.length)) - 1;
  slider.max = last;
  let step = 0, playing = plays, previous = 0;
  const show = (number) => {
    step = number;
    slider.value = Math.floor(number);
    views.forEach((view) => draw(view, Math.floor(number)));
  };
  const tick = (now) => {
    if (playing && previous) show(Math.min(last, step + ((now - previous) / 1000) * framesPerSecond * Number(speed.value)));
    if (step >= last && playing) toggle();
    previous = now;
    requestAnimationFrame(tick);
  };
  const toggle = () => {
    if (!playing && step >= last) step = 0;
    playing = !playing;
    button.textContent = playing ? "Pause" : "Play";
  };
  button.textContent = playing ? "Pause" : "Play";
  button.addEventListener("click", toggle);
  slider.addEventListener("input", () => { if (playing) toggle(); show(Number(slider.value)); });
  show(0);
  requestAnimationFrame(tick);
}
