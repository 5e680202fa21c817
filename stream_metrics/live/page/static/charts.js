// A chart: lines or stacked bars over time, a slider to read points, and a table of the values.

import { el, svg } from "./dom.js";
import { NONE, clock } from "./format.js";

const HEIGHT = 168;
const EDGE = { top: 10, right: 10, bottom: 22, left: 44 };

/** The end of an axis that begins at 0 and has room for `largest` and 2% more: a round number. With
 * `whole` it is even, so that the tick in the middle is a whole number too. */
function niceEnd(largest, limit, whole) {
  if (!(largest > 0)) return limit ?? (whole ? 2 : 1);
  const scale = 10 ** Math.floor(Math.log10(largest));
  const steps = [1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15]; // `largest` is below 10 scales, and 2% more below 15
  const end = scale * steps.find((step) => step * scale >= largest * 1.02);
  if (whole) return 2 * Math.ceil(end / 2);
  return limit ? Math.min(end, limit) : end;
}

let numbered = 0;

export class Chart {
  /**
   * `kind` is "lines" or "bars", `limit` the largest possible value, `format` formats a value;
   * `whole` means that values are whole numbers.
   */
  constructor({ title, about, kind = "lines", limit = null, whole = false, format, axis = format }) {
    Object.assign(this, { title, kind, limit, whole, format, axis });
    this.data = null;
    this.key = ""; // the drawn data, so that the same data is not drawn again
    this.chosen = null;
    const id = `chart-${(numbered += 1)}`;
    this.value = el("output", { class: "chart-value", "aria-live": "off" });
    this.legend = el("ul", { class: "legend" });
    this.readout = el("p", { class: "readout", "aria-hidden": "true" });
    this.none = el("p", { class: "chart-none", hidden: true });
    this.picture = svg("svg", { "aria-hidden": "true", focusable: "false", height: HEIGHT });
    this.plot = el("div", { class: "plot", role: "slider", tabindex: "0", "aria-labelledby": id,
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", "aria-valuetext": "no data" },
    this.picture, this.none);
    this.table = el("table");
    this.details = el("details", { class: "behind" }, el("summary", {}, "Table",
      el("span", { class: "hidden-text" }, ` of ${title}`)),
    el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": `Table of ${title}` },
      this.table));
    this.element = el("figure", { class: "card chart" },
      el("figcaption", {}, el("h3", { id }, title), this.value, el("p", { class: "muted" }, about)),
      this.legend, this.plot, this.readout, this.details);
    this.#listen();
  }

  #listen() {
    new ResizeObserver(() => this.#draw()).observe(this.plot);
    this.details.addEventListener("toggle", () => this.#fillTable());
    this.plot.addEventListener("pointermove", (event) => this.#choose(this.#indexAt(event)));
    this.plot.addEventListener("pointerdown", (event) => this.#choose(this.#indexAt(event)));
    this.plot.addEventListener("pointerleave", () => this.#choose(null));
    this.plot.addEventListener("blur", () => this.#choose(null));
    this.plot.addEventListener("focus", () => this.#choose(this.#last()));
    this.plot.addEventListener("keydown", (event) => {
      const at = this.chosen ?? this.#last();
      const steps = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
        PageDown: at - 10, PageUp: at + 10, Home: 0, End: this.#last() };
      if (!this.data || !(event.key in steps)) return;
      event.preventDefault();
      this.#choose(Math.max(0, Math.min(this.#last(), steps[event.key])));
    });
  }

  /**
   * Show `{times, series: [{name, values, tone}], seconds, now, none, usual}`; `none` is a text to show instead.
   * `usual`, if there is one, is drawn as a line and explained in the legend: `{value, text}`.
   */
  update(data) {
    const key = JSON.stringify(data);
    if (key === this.key) return;
    this.key = key;
    this.data = data;
    const shown = data.series.filter((series) => series.values.some((value) => value !== null));
    this.none.hidden = !data.none;
    this.none.textContent = data.none ?? "";
    this.value.textContent = data.none ? "" : data.now ?? "";
    const titled = this.kind === "lines" && data.series.length < 2; // the title names the only line
    const keys = titled ? [] : shown.map(({ tone, name }) => [`key ${tone}`, name]);
    if (this.#compared()) keys.push(["key dashed", this.data.usual.text]);
    this.legend.hidden = !keys.length || Boolean(data.none);
    this.legend.replaceChildren(...keys.map(([key, name]) => el("li", {}, el("span", { class: key }), name)));
    if (this.chosen !== null && this.chosen > this.#last()) this.chosen = null;
    this.#draw();
    this.#describe();
    this.#fillTable();
  }

  #last() {
    return this.data ? Math.max(0, this.data.times.length - 1) : 0;
  }

  #indexAt(event) {
    const box = this.plot.getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    return Math.max(0, Math.min(this.#last(), Math.round(share * this.#last())));
  }

  #choose(index) {
    if (!this.data || this.data.none) return;
    this.chosen = index;
    this.#draw();
    this.#describe();
  }

  /** Describe the chosen point as text; the last one if none is chosen. */
  #describe() {
    const at = this.chosen ?? this.#last();
    const text = this.data.none ?? this.#point(at);
    this.plot.setAttribute("aria-valuemax", String(this.#last()));
    this.plot.setAttribute("aria-valuenow", String(at));
    this.plot.setAttribute("aria-valuetext", text);
    this.readout.textContent = this.chosen === null ? "" : text;
  }

  #point(at) {
    const said = this.data.series
      .filter((series) => series.values.some((value) => value !== null))
      .map((series) => `${series.name} ${this.format(series.values[at] ?? null)}`);
    return `${clock(this.data.times[at], this.data.seconds)}: ${said.join(", ")}`;
  }

  #draw() {
    const width = this.plot.clientWidth;
    if (!this.data || !width) return;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("width", String(width));
    if (this.data.none) {
      this.picture.replaceChildren();
      return;
    }
    const end = this.#end();
    const n = this.data.times.length;
    const inner = width - EDGE.left - EDGE.right;
    const place = {
      width,
      end,
      x: (at) => EDGE.left + (n > 1 ? (at / (n - 1)) * inner : inner),
      y: (value) => HEIGHT - EDGE.bottom - (value / end) * (HEIGHT - EDGE.top - EDGE.bottom),
      step: inner / Math.max(1, n - 1),
    };
    this.picture.replaceChildren(
      ...this.#grid(place),
      ...(this.kind === "bars" ? this.#bars(place) : this.#lines(place)),
      ...this.#usual(place),
      ...this.#cursor(place),
    );
  }

  #end() {
    const { series, times } = this.data;
    let largest = 0;
    times.forEach((_, at) => {
      const values = series.map((each) => each.values[at] ?? 0);
      const height = this.kind === "bars" ? values.reduce((a, b) => a + b, 0) : Math.max(...values);
      largest = Math.max(largest, height);
    });
    largest = Math.max(largest, 1.08 * (this.data.usual?.value ?? 0));
    return niceEnd(largest, this.limit, this.whole);
  }

  #grid({ width, end, x, y }) {
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(end * share);
      parts.push(svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
      const label = svg("text", { class: "tick", x: EDGE.left - 6, y: at + 4, "text-anchor": "end" });
      label.textContent = this.axis(end * share);
      parts.push(label);
    }
    const { times, seconds } = this.data;
    const ticks = width < 420 ? 3 : 5;
    for (let tick = 0; tick < ticks && times.length > 1; tick += 1) {
      const at = Math.round((tick / (ticks - 1)) * (times.length - 1));
      const anchor = tick === 0 ? "start" : tick === ticks - 1 ? "end" : "middle";
      const label = svg("text", { class: "tick", x: x(at), y: HEIGHT - 5, "text-anchor": anchor });
      label.textContent = clock(times[at], seconds);
      parts.push(label);
    }
    return parts;
  }

  /** Lines with gaps where there is no value; a single point is a dot; a single line is shaded. */
  #lines({ x, y }) {
    const parts = [];
    for (const { values, tone } of this.data.series) {
      let path = "";
      let shade = "";
      let start = null;
      values.forEach((value, at) => {
        if (value === null) return;
        const first = at === 0 || values[at - 1] === null;
        const last = at === values.length - 1 || values[at + 1] === null;
        if (first) start = at;
        path += `${first ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        shade += `${first ? `M${x(at).toFixed(1)} ${y(0)}L` : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        if (last) shade += `L${x(at).toFixed(1)} ${y(0)}Z`;
        if (last && start === at) {
          parts.push(svg("circle", { class: `spot ${tone}`, cx: x(at), cy: y(value), r: 2.5 }));
        }
      });
      if (this.data.series.length === 1) parts.unshift(svg("path", { class: `shade ${tone}`, d: shade }));
      parts.push(svg("path", { class: `line ${tone}`, d: path }));
    }
    return parts;
  }

  #bars({ x, y, step }) {
    const parts = [];
    const wide = Math.max(1, step * 0.74);
    this.data.times.forEach((_, at) => {
      let below = 0;
      for (const { values, tone } of this.data.series) {
        const value = values[at] ?? 0;
        if (!value) continue;
        const top = y(below + value);
        const left = Math.max(EDGE.left, x(at) - wide / 2);
        const height = Math.max(0.5, y(below) - top);
        parts.push(svg("rect", { class: `bar ${tone}`, x: left, y: top, width: wide, height }));
        below += value;
      }
    });
    return parts;
  }

  /** Whether there is a usual value to compare with. */
  #compared() {
    return Boolean(this.data.usual);
  }

  #usual({ width, y }) {
    if (!this.#compared()) return [];
    const at = y(this.data.usual.value);
    return [svg("line", { class: "usual-line", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at })];
  }

  #cursor({ x, y }) {
    if (this.chosen === null) return [];
    const at = this.chosen;
    const parts = [svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: EDGE.top, y2: HEIGHT - EDGE.bottom })];
    if (this.kind === "lines") {
      for (const { values, tone } of this.data.series) {
        if (values[at] !== null && values[at] !== undefined) {
          parts.push(svg("circle", { class: `spot ${tone}`, cx: x(at), cy: y(values[at]), r: 4 }));
        }
      }
    }
    return parts;
  }

  #fillTable() {
    if (!this.details.open || !this.data) return;
    const { times, series, seconds } = this.data;
    const head = el("tr", {}, el("th", { scope: "col" }, "from"),
      ...series.map((each) => el("th", { scope: "col", class: "number" }, each.name)));
    const rows = times.map((time, at) => el("tr", {}, el("th", { scope: "row" }, clock(time, seconds)),
      ...series.map((each) => {
        const value = each.values[at] ?? null;
        return el("td", { class: "number" }, value === null ? NONE : this.format(value));
      })));
    this.table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows.reverse()));
  }
}
