// Curves: chooses between drawings, and shows a part of one larger. Drawings and the texts of ticks come from Python.
"use strict";
(() => {
  const { take, $, state, change, onKey } = bakeoff;
  const form = $("choices");
  if (!form) return;
  const SVG = "http://www.w3.org/2000/svg";
  const names = (field) => [...form.elements[field].options].map((option) => option.value);
  /** @type {Zoom[]} */ let panels = [];
  let drawn = 0;

  async function show() {
    const asked = state();
    for (const field of ["metric", "x", "log"]) {
      const value = asked.get(field) || "";
      form.elements[field].value = names(field).includes(value) ? value : names(field)[0];
    }
    const metric = form.elements.metric.selectedIndex, clock = form.elements.x.selectedIndex, mine = ++drawn;
    const variant = (await take(`curves-${metric}-${clock}`, true))[form.elements.log.value || "none"];
    if (mine !== drawn) return;
    $("drawing").innerHTML = variant.html; // made by Jinja and web/svg.py with everything escaped
    panels = [...$("drawing").querySelectorAll(".panel > svg")].map((svg, k) => new Zoom(svg, variant.panels[k]));
    const [low, high, bottom, top] = (asked.get("zoom") || "").split(",").map(Number);
    const zoomed = asked.has("zoom") && high > low && top > bottom;
    if (zoomed) for (const panel of panels) panel.to({ low, high }, { low: bottom, high: top });
    $("out").disabled = !zoomed;
  }

  /** One panel: which part of it is shown, and what a reader drags over. */
  class Zoom {
    constructor(svg, scales) {
      [this.svg, this.scales, this.inner] = [svg, scales, svg.querySelector("svg")];
      for (const name of ["x", "y", "width", "height"]) this[name] = Number(this.inner.getAttribute(name));
      svg.addEventListener("pointerdown", (event) => this.drag(event));
    }

    /** The point of the panel under the pointer, in its own lengths. */
    at(event) {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      return [Math.max(0, Math.min(this.width, point.x - this.x)), Math.max(0, Math.min(this.height, point.y - this.y))];
    }

    drag(event) {
      if (event.button) return;
      const [left, top] = this.at(event), box = document.createElementNS(SVG, "rect");
      box.setAttribute("class", "dragged");
      this.svg.append(box);
      this.svg.setPointerCapture(event.pointerId);
      let part = null;
      const moved = (next) => {
        const [right, bottom] = this.at(next);
        part = { x: Math.min(left, right), y: Math.min(top, bottom), width: Math.abs(right - left), height: Math.abs(bottom - top) };
        for (const [name, value] of Object.entries({ ...part, x: part.x + this.x, y: part.y + this.y })) box.setAttribute(name, String(value));
      };
      this.svg.addEventListener("pointermove", moved);
      this.svg.addEventListener("pointerup", () => {
        this.svg.removeEventListener("pointermove", moved);
        box.remove();
        if (!part || part.width < 8) return;
        if (part.height < 8) [part.y, part.height] = [0, this.height];
        const now = this.now || { x: this.scales.x, y: this.scales.y };
        const x = (length) => now.x.low + (length / this.width) * (now.x.high - now.x.low);
        const y = (length) => now.y.high - (length / this.height) * (now.y.high - now.y.low);
        const ends = [x(part.x), x(part.x + part.width), y(part.y + part.height), y(part.y)];
        change({ zoom: ends.map((end) => String(Number(end.toPrecision(6)))).join(",") }, true);
        show();
      }, { once: true });
    }

    /** Show a part. The drawing is the same; its box of view is smaller. */
    to(x, y) {
      const { scales, width, height } = this;
      this.now = { x, y };
      const across = (value) => ((value - scales.x.low) / (scales.x.high - scales.x.low)) * width;
      const up = (value) => (1 - (value - scales.y.low) / (scales.y.high - scales.y.low)) * height;
      const view = [across(x.low), up(y.high), across(x.high) - across(x.low), up(y.low) - up(y.high)];
      this.inner.setAttribute("viewBox", view.join(" "));
      this.inner.setAttribute("preserveAspectRatio", "none");
      this.inner.classList.add("zoomed");
      const xs = fitting(scales.x.ticks, x, 8), ys = fitting(scales.y.ticks, y, 8);
      const grid = this.inner.querySelector(".grid");
      if (grid) grid.setAttribute("d", xs.map(([value]) => `M${across(value)} 0V${height}`).join("") + ys.map(([value]) => `M0 ${up(value)}H${width}`).join(""));
      this.write("ticks-x", xs, (value) => [this.x + ((value - x.low) / (x.high - x.low)) * width, this.y + height + 12.5]);
      this.write("ticks-y", ys, (value) => [this.x - 5, this.y + (1 - (value - y.low) / (y.high - y.low)) * height + 3]);
    }

    write(name, ticks, place) {
      const group = this.svg.querySelector(`.${name}`), pattern = group.firstElementChild;
      if (!pattern) return;
      group.replaceChildren(...ticks.map(([value, text]) => {
        const label = pattern.cloneNode(false), [left, top] = place(value);
        label.setAttribute("x", String(left));
        label.setAttribute("y", String(top));
        label.textContent = text;
        return label;
      }));
    }
  }

  /** The coarsest ticks of which three are inside; some of them where there are too many. */
  function fitting(sizes, { low, high }, most) {
    const inside = sizes.map((ticks) => ticks.filter(([value]) => value >= low && value <= high));
    const ticks = inside.find((some) => some.length >= 3) || inside[inside.length - 1];
    const stride = Math.ceil(ticks.length / most);
    return ticks.filter((_, k) => k % stride === 0);
  }

  form.addEventListener("change", (event) => {
    change({ [event.target.name]: event.target.value, zoom: "" });
    show();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  const whole = () => { change({ zoom: "" }); show(); };
  $("out").addEventListener("click", whole);
  const next = (field) => {
    const select = form.elements[field];
    select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
    change({ [field]: select.value, zoom: "" });
    show();
  };
  onKey("m", "next metric", () => next("metric"));
  onKey("x", "next horizontal axis", () => next("x"));
  onKey("l", "next logarithmic axis", () => next("log"));
  onKey("0", "whole curve", whole);

  /** Show a part of the first panel's ranges: larger around its middle, or moved. @param {number} factor @param {number} shift in widths */
  const part = (factor, shift) => {
    const panel = panels[0];
    if (!panel) return;
    const { x, y } = panel.now || panel.scales, wide = (x.high - x.low) * factor, middle = (x.high + x.low) / 2 + shift * (x.high - x.low);
    change({ zoom: [middle - wide / 2, middle + wide / 2, y.low, y.high].map((end) => String(Number(end.toPrecision(6)))).join(",") });
    show();
  };
  onKey("+", "larger", () => part(0.5, 0));
  onKey("-", "smaller", () => part(2, 0));
  onKey("h", "move left", () => part(1, -0.25));
  onKey("j", "move right", () => part(1, 0.25));
  addEventListener("hashchange", show);
  show();
})();
