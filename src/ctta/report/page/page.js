"use strict";
// The page is complete without this: it adds a theme button, values under the pointer, legends that highlight and
// switch series, zoom, tables that sort, and downloads.
(() => {
  const root = document.documentElement;

  // A page from disk may have no storage at all; the choice then lasts as long as the page.
  const recall = () => { try { return localStorage.getItem("ctta-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("ctta-theme", theme); } catch { /* no storage */ } };
  const stored = recall();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored; // before the first paint

  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function drawn(name, attributes, text = "") {
    const made = document.createElementNS(document.querySelector("svg").namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  function themeButton() {
    const button = document.getElementById("theme");
    const name = document.getElementById("theme-name");
    const show = () => { name.textContent = dark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      remember(root.dataset.theme);
      show();
    });
    show();
    button.hidden = false;
  }

  // Series: `off` holds the numbers of those that are switched off, by chart; `redraw` is called after a change.
  function legends(off, redraw) {
    for (const legend of document.querySelectorAll(".legend")) {
      const chart = document.getElementById(legend.dataset.for);
      for (const item of legend.children) {
        const number = Number(item.dataset.series);
        const marks = () => chart.querySelectorAll(`[data-series="${number}"]`);
        const light = (on) => {
          chart.classList.toggle("focus", on);
          for (const mark of marks()) mark.classList.toggle("lit", on);
        };
        const button = element("button", { type: "button", "aria-pressed": "true", title: "Switch on or off" }, ...item.childNodes);
        item.append(button);
        item.addEventListener("pointerenter", () => light(!off[chart.id].has(number)));
        item.addEventListener("pointerleave", () => light(false));
        button.addEventListener("click", () => {
          const hidden = !off[chart.id].delete(number);
          if (hidden) off[chart.id].add(number);
          button.setAttribute("aria-pressed", String(!hidden));
          light(!hidden);
          for (const mark of marks()) mark.classList.toggle("off", hidden);
          redraw[chart.id]?.();
        });
      }
    }
  }

  // Lines over the stream: pointer, zoom and scales.

  function ticks(low, high) {
    const raw = Math.max(high - low, 1e-9) / 5;
    const scale = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * scale).find((one) => one >= raw * 0.999);
    const start = Math.floor(low / step + 1e-6);
    const count = Math.ceil(high / step - 1e-6) - start;
    return Array.from({ length: count + 1 }, (_, index) => Number(((start + index) * step).toPrecision(10)));
  }

  // Apart from each other, each as near to where it was as that allows: `spread_out` of charts.py.
  function spread(places, gap, low, high) {
    gap = Math.min(gap, (high - low) / Math.max(places.length - 1, 1));
    const order = places.map((_, index) => index).sort((a, b) => places[a] - places[b]);
    const groups = [];
    order.forEach((index, rank) => {
      let group = { mean: places[index] - rank * gap, size: 1 };
      while (groups.length && groups.at(-1).mean >= group.mean) {
        const { mean, size } = groups.pop();
        group = { mean: (mean * size + group.mean * group.size) / (size + group.size), size: size + group.size };
      }
      groups.push(group);
    });
    const starts = groups.flatMap(({ mean, size }) => Array(size).fill(Math.min(Math.max(mean, low), high - (places.length - 1) * gap)));
    const placed = [];
    order.forEach((index, rank) => { placed[index] = starts[rank] + rank * gap; });
    return placed;
  }

  function live(svg, chart, off, tip) {
    const [left, right, top, floor, low, high, steps] = ["left", "right", "top", "floor", "low", "high", "steps"].map((name) => Number(svg.dataset[name]));
    const area = svg.querySelector(".area");
    const axes = svg.querySelector(".axes");
    const cursor = svg.querySelector(".cursor");
    let from = 0, to = steps;
    const x = (step) => left + ((step - from) / (to - from)) * (right - left);
    const within = (values) => values.slice(Math.floor(from), Math.ceil(to));
    const shown = () => chart.series.map((series, number) => ({ ...series, number })).filter(({ number }) => !off.has(number));

    function scales() {
      const values = shown().flatMap((series) => within(series.values)).filter((value) => value != null);
      const whole = from === 0 && to === steps && !off.size;
      const marks = whole || !values.length ? ticks(low, high) : ticks(Math.min(0, ...values), Math.max(0, ...values) || 1);
      const [bottom, peak] = [marks[0], marks.at(-1)];
      const y = (value) => floor - ((value - bottom) / (peak - bottom)) * (floor - top);
      return { marks, bottom, peak, y };
    }

    function draw() {
      const { marks, bottom, peak, y } = scales();
      const first = (step) => left + (step / steps) * (right - left); // as it was drawn
      const before = (value) => floor - ((value - low) / (high - low)) * (floor - top);
      area.setAttribute("viewBox", [first(from), before(peak), first(to) - first(from), before(bottom) - before(peak)].join(" "));
      for (const old of axes.querySelectorAll(".grid, .tick")) old.remove();
      for (const mark of marks) {
        axes.append(drawn("line", { class: "grid", x1: left, x2: right, y1: y(mark), y2: y(mark) }));
        axes.append(drawn("text", { class: "tick", x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, mark));
      }
      for (const name of svg.querySelectorAll(".names text")) {
        const [begin, end] = [Math.max(name.dataset.from, from), Math.min(name.dataset.to, to)];
        const middle = x((begin + end) / 2);
        name.classList.toggle("off", begin >= end);
        name.setAttribute("x", middle);
        const turn = name.getAttribute("transform");
        if (turn) name.setAttribute("transform", turn.replace(/ [-\d.]+/, ` ${middle}`));
      }
      ends(y);
    }

    function ends(y) {
      const lasts = shown().flatMap(({ number, values }) => {
        const last = within(values).findLastIndex((value) => value != null) + Math.floor(from);
        if (last < Math.floor(from)) return [];
        const next = last + 1 >= to ? values[last + 1] : null; // the line goes on beyond the edge
        return next == null
          ? [{ number, at: Math.min(x(last + 0.5), right), place: y(values[last]) }]
          : [{ number, at: right, place: y((values[last] + next) / 2) }];
      });
      for (const mark of svg.querySelectorAll(".ends [data-series]")) mark.classList.add("off");
      for (const at of new Set(lasts.map((last) => last.at))) {
        const group = lasts.filter((last) => last.at === at);
        spread(group.map(({ place }) => place), 16, top, floor).forEach((height, rank) => {
          const { number, place } = group[rank];
          const [leader, text] = svg.querySelectorAll(`.ends [data-series="${number}"]`);
          leader.setAttribute("points", `${at + 3},${place} ${at + 14},${height}`);
          text.setAttribute("x", at + 17);
          text.setAttribute("y", height + 4);
          for (const mark of [leader, text]) mark.classList.remove("off");
        });
      }
    }

    // Where the pointer is, in steps.
    function step(event) {
      const box = svg.getBoundingClientRect();
      const across = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      return from + ((across - left) / (right - left)) * (to - from);
    }

    function point(event) {
      const index = Math.floor(step(event));
      const inside = index >= Math.floor(from) && index < Math.ceil(to) && index < chart.steps.length;
      tip.hidden = !inside;
      svg.classList.toggle("hover", inside);
      if (!inside) return;
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(index + 0.5));
      tip.replaceChildren(element("b", {}, `batch ${chart.steps[index]} · ${chart.domains[index]}`));
      for (const series of shown()) {
        const value = series.values[index];
        if (value != null) tip.append(element("div", {}, `${series.label}  ${value.toFixed(chart.unit ? 1 : 3)}${chart.unit}`));
      }
      const roomy = event.clientX + tip.offsetWidth + 24 < innerWidth;
      tip.style.left = `${roomy ? event.clientX + 16 : Math.max(4, event.clientX - tip.offsetWidth - 16)}px`;
      tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)}px`;
    }

    // A part of the stream: one domain from the list, or any part with the mouse.
    const domains = [];
    chart.domains.forEach((name, index) => {
      if (domains.at(-1)?.name !== name) domains.push({ name, begin: index });
      domains.at(-1).end = index + 1;
    });
    const list = element("select", { "aria-label": "Part of the stream" }, element("option", {}, "whole stream"), element("option", { hidden: "" }, "part"));
    for (const { name } of domains.length > 1 ? domains : []) list.append(element("option", {}, name));
    function zoom(begin, end, choice) {
      [from, to] = [begin, end];
      list.selectedIndex = choice;
      if (choice === 1) list.options[1].textContent = `batches ${chart.steps[Math.floor(begin)]} to ${chart.steps[Math.min(Math.ceil(end), chart.steps.length) - 1]}`;
      draw();
    }
    list.addEventListener("change", () => {
      const { begin, end } = domains[list.selectedIndex - 2] ?? { begin: 0, end: steps };
      zoom(begin, end, list.selectedIndex);
    });
    if (domains.length > 1 || steps > 20) svg.closest("figure").querySelector(".scroll").before(element("label", { class: "zoom" }, "Show ", list, element("span", {}, " or drag over the chart; a double click shows all")));

    let start = null;
    const selection = drawn("rect", { class: "selection", y: top, height: floor - top, width: 0 });
    svg.append(selection);
    const bounded = (event) => Math.min(Math.max(step(event), from), to);
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) start = bounded(event);
    });
    svg.addEventListener("pointermove", (event) => {
      point(event);
      if (start === null) return;
      const [begin, end] = [start, bounded(event)].sort((a, b) => a - b);
      selection.setAttribute("x", x(begin));
      selection.setAttribute("width", x(end) - x(begin));
    });
    const stop = () => { start = null; selection.setAttribute("width", 0); };
    svg.addEventListener("pointerup", (event) => {
      const [begin, end] = start === null ? [0, 0] : [start, bounded(event)].sort((a, b) => a - b);
      stop();
      const last = Math.min(Math.ceil(end), chart.steps.length);
      if (x(end) - x(begin) > 12 && last - Math.floor(begin) > 1) zoom(Math.floor(begin), last, 1);
    });
    svg.addEventListener("pointerleave", () => { stop(); tip.hidden = true; svg.classList.remove("hover"); });
    svg.addEventListener("dblclick", () => zoom(0, steps, 0));
    return draw;
  }

  // Tables

  function number(cell) {
    return Number.parseFloat(cell.textContent.trim().replace("−", "-").replace(",", ""));
  }

  function sortable(table) {
    const body = table.tBodies[0];
    if (body.rows.length < 2) return;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.querySelector("a")) return;
      const button = element("button", { type: "button", class: "sort", title: "Sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const compare = (a, b) => {
          const [one, two] = [number(a.cells[column]), number(b.cells[column])];
          if (Number.isNaN(one) !== Number.isNaN(two)) return Number.isNaN(one) ? 1 : -1; // what is not known comes last
          const order = Number.isNaN(one) ? a.cells[column].textContent.localeCompare(b.cells[column].textContent) : one - two;
          return up ? order : -order;
        };
        body.append(...[...body.rows].sort(compare));
      });
    });
  }

  // Downloads

  function save(name, text) {
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Every value that a chart shows, as columns: [head, values].
  function columns(chart) {
    const { steps, domains, series = [], head = "domain", ...rest } = chart;
    const found = steps ? [["batch", steps]] : [];
    if (domains) found.push([head, domains]);
    found.push(...series.map(({ label, values }) => [label, values]));
    return [...found, ...Object.entries(rest).filter(([, values]) => Array.isArray(values))];
  }

  function csv(chart) {
    const safe = (value) => (typeof value === "string" && /^\s*[=+\-@]/.test(value) ? `'${value}` : value ?? "");
    const cell = (value) => `"${String(safe(value)).replaceAll('"', '""')}"`.replace(/^"([\w.-]*)"$/, "$1");
    const found = columns(chart);
    const rows = found[0][1].map((_, index) => found.map(([, values]) => cell(values[index])).join(","));
    return [found.map(([head]) => cell(head)).join(","), ...rows, ""].join("\n");
  }

  const TEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "\\textbar{}", "−": "-", "–": "--", "±": "$\\pm$", "·": "$\\cdot$" };
  const escaped = (text) => String(text).replaceAll("_", " ").replace(/[&%$#{}\\~^<>|−–±·]/g, (one) => TEX[one] ?? `\\${one}`);
  const MARKS = { circle: "*", square: "square*", diamond: "diamond*", up: "triangle*", down: "triangle*, every mark/.append style={rotate=180}" };

  // Colour, line and mark of a series as the page draws it; pgfplots' own if it draws no series.
  function look(svg, number, named) {
    const drawing = svg.querySelector(`.series[data-series="${number}"]`);
    const line = drawing?.querySelector("polyline");
    const options = named && !line ? ["only marks"] : [];
    if (!drawing) return `+[${options.join(", ")}]`;
    const parts = getComputedStyle(drawing).getPropertyValue("--c").match(/[\da-f]{2}/gi).map((part) => Number.parseInt(part, 16));
    options.push(`color={rgb,255:red,${parts[0]};green,${parts[1]};blue,${parts[2]}}`, named ? `mark=${MARKS[drawing.dataset.mark]}` : "no marks");
    const dash = line?.getAttribute("stroke-dasharray")?.split(" ").map((length, index) => `${index % 2 ? "off" : "on"} ${length}pt`);
    if (dash) options.push(`dash pattern=${dash.join(" ")}`);
    return `[${options.join(", ")}]`;
  }

  // The same chart for pgfplots.
  function tex(chart, svg) {
    const found = columns(chart).filter(([head]) => head !== "samples"); // the size of a dot
    const [[head, across], ...lines] = chart.steps ? found.filter(([name]) => name !== "domain") : found;
    const named = typeof across[0] === "string";
    const options = [`title={${escaped(svg.querySelector("title").textContent)}}`, `xlabel={${escaped(head)}}`, "legend pos=outer north east", "width=12cm, height=7cm"];
    const axis = svg.querySelector(".axes .axis")?.textContent;
    if (axis) options.push(`ylabel={${escaped(axis)}}`);
    if (named) options.push(`xtick={${across.map((_, index) => index).join(",")}}`, `xticklabels={${across.map((name) => `{${escaped(name)}}`).join(",")}}`, "x tick label style={rotate=45, anchor=east}");
    const plots = lines.map(([label, values], number) => {
      const points = values.map((value, index) => (value == null ? "" : `(${named ? index : across[index]},${value})`));
      return `\\addplot${look(svg, number, named)} coordinates {${points.filter(Boolean).join(" ")}};\n\\addlegendentry{${escaped(label)}}`;
    });
    return ["% \\usepackage{pgfplots}", "\\begin{tikzpicture}", `\\begin{axis}[${options.join(", ")}]`, ...plots, "\\end{axis}", "\\end{tikzpicture}", ""].join("\n");
  }

  const STYLES = ["display", "fill", "font-family", "font-size", "font-weight", "opacity", "paint-order", "stroke", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "stroke-width", "vector-effect", "visibility"];

  // The chart as it looks now, in a file of its own.
  function standalone(svg) {
    const copy = svg.cloneNode(true);
    const pairs = [...copy.querySelectorAll("*")].map((part, index) => [part, svg.querySelectorAll("*")[index]]);
    for (const [part, original] of pairs) {
      const style = getComputedStyle(original);
      if (style.display === "none") part.remove();
      else part.setAttribute("style", STYLES.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    }
    const { width, height } = svg.viewBox.baseVal;
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.prepend(drawn("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
    return new XMLSerializer().serializeToString(copy);
  }

  function downloads({ charts, files }) {
    for (const place of document.querySelectorAll(".files")) {
      const offer = (words, name, make) => {
        const button = element("button", { type: "button", title: `Download ${name}` }, words);
        button.addEventListener("click", () => save(name, make()));
        place.append(button);
      };
      const { chart, files: names } = place.dataset;
      if (chart) {
        const svg = document.getElementById(chart);
        offer("SVG", `${chart}.svg`, () => standalone(svg));
        offer("CSV", `${chart}.csv`, () => csv(charts[chart]));
        offer("LaTeX", `${chart}.tex`, () => tex(charts[chart], svg));
      }
      for (const name of names?.split(" ").filter((one) => one in files) ?? []) {
        offer(name.endsWith(".tex") ? "LaTeX" : "CSV", name, () => files[name]);
      }
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const tip = document.getElementById("tip");
    const off = {}, redraw = {};
    for (const svg of document.querySelectorAll("svg.chart")) {
      off[svg.id] = new Set();
      if (svg.dataset.steps) redraw[svg.id] = live(svg, data.charts[svg.id], off[svg.id], tip);
    }
    themeButton();
    legends(off, redraw);
    downloads(data);
    document.querySelectorAll("table").forEach(sortable);
  });
})();
