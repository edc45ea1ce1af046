"use strict";
// Asks the service once a second and draws what it says. All that comes from outside is set as text.
(() => {
  const root = document.documentElement;
  const recall = (key) => { try { return sessionStorage.getItem(key); } catch { return null; } };
  const remember = (key, value) => { try { sessionStorage.setItem(key, value); } catch { /* no storage */ } };
  const theme = recall("ctta-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme; // before the first paint
  const at = (id) => document.getElementById(id);
  let token = recall("ctta-token") || "";
  let chosen = decodeURIComponent(location.hash.slice(1));
  let model = null;
  let timer = 0;

  function element(tag, text, name) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  }
  function drawn(tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const number = (value, digits = 2) => (value == null ? "–" : value.toFixed(digits));
  const percent = (value) => (value == null ? "–" : `${(100 * value).toFixed(0)} %`);
  const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 2 ** 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`);
  const called = (label) => (model && model.class_names[label]) || `class ${label}`;

  async function ask(path, options = {}) {
    const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    const said = await response.json();
    if (response.ok) return said;
    throw Object.assign(new Error(said.error || response.statusText), { status: response.status });
  }
  function trouble(error) {
    at("trouble").hidden = !error;
    at("trouble").textContent = error ? error.message : "";
    at("login").hidden = !(error && error.status === 401);
    if (error && !model) at("headline").textContent = error.status === 401 ? "A token is needed." : "The service does not answer.";
  }

  function pill(target, word) {
    target.textContent = word;
    target.className = `pill ${word.split(" ")[0]}`;
    return target;
  }

  function showStreams(said) {
    model = said.model;
    const names = said.streams.map((stream) => stream.name);
    if (!names.includes(chosen)) chosen = names[0] || "";
    at("model").textContent = `· ${model.name}`;
    const alarmed = said.streams.filter((stream) => ["frozen", "rolled back"].includes(stream.guard)).length;
    const streams = `${said.total} stream${said.total === 1 ? "" : "s"}`;
    at("headline").textContent = !said.total ? "No stream yet." : alarmed ? `${alarmed} of ${streams} need${alarmed === 1 ? "s" : ""} a look.` : `${streams}, all well.`;
    const facts = { Method: model.method, "In memory": `${said.resident} of ${said.total}`, "Their states": size(said.ctta_state_bytes), Waiting: `${said.ctta_queued_requests} requests` };
    at("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value));
      return pair;
    }));
    at("rows").replaceChildren(...said.streams.slice(0, 100).map((stream) => {
      const row = element("tr"), head = element("th"), button = element("button", stream.name), guard = element("td", undefined, "name");
      row.setAttribute("aria-selected", stream.name === chosen);
      button.type = "button";
      button.addEventListener("click", () => { chosen = stream.name; location.hash = encodeURIComponent(chosen); look(); });
      head.scope = "row";
      head.append(button);
      if (stream.resident) guard.append(pill(element("span"), stream.guard));
      row.append(head, guard);
      const cells = stream.resident
        ? [stream.step, stream.version, number(stream.confidence), number(stream.source_confidence), stream.seconds == null ? "–" : `${(1000 * stream.seconds).toFixed(0)} ms`, `${stream.idle_seconds.toFixed(0)} s`]
        : ["put away", "", "", "", "", ""];
      row.append(...cells.map((cell) => element("td", cell)));
      return row;
    }));
    at("more").textContent = said.total > 100 ? `The ${Math.min(100, said.streams.length)} that were used last.` : "";
    at("streams").hidden = !said.total;
    at("try").hidden = !model.pictures;
  }

  // The next 1, 2 or 5 with zeros.
  function round(value) {
    const scale = 10 ** Math.floor(Math.log10(value));
    return scale * [1, 2, 5, 10].find((one) => one * scale >= value);
  }

  function plot(host, series, marks, steps, format, top) {
    const width = Math.max(280, host.clientWidth), height = 170, left = 56, right = 8, low = 22, high = 8;
    const values = series.flatMap((one) => one.values.filter((value) => value != null));
    const most = top ?? round(Math.max(0.01, ...values));
    const x = (i) => left + ((i + 0.5) / Math.max(1, steps.length)) * (width - left - right);
    const y = (value) => high + (1 - value / most) * (height - low - high);
    const svg = drawn("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img" });
    for (const part of [0, 0.5, 1]) {
      svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(part * most), y2: y(part * most) }));
      svg.append(drawn("text", { x: left - 6, y: y(part * most) + 4, "text-anchor": "end", class: "tick" }, format(part * most)));
    }
    for (const i of marks) svg.append(drawn("line", { class: "mark", x1: x(i), x2: x(i), y1: high, y2: height - low }));
    for (const one of series) {
      const points = one.values.map((value, i) => (value == null ? null : `${x(i).toFixed(1)},${y(Math.min(value, most)).toFixed(1)}`)).filter(Boolean);
      const group = drawn("g", { class: `series ${one.style}`, "data-series": one.name });
      group.append(points.length > 1 ? drawn("polyline", { points: points.join(" ") }) : drawn("g", {}));
      if (points.length) { const [cx, cy] = points[points.length - 1].split(","); group.append(drawn("circle", { cx, cy, r: 3 })); }
      svg.append(group);
    }
    if (steps.length) {
      svg.append(drawn("text", { x: left, y: height - 4, class: "tick" }, `batch ${steps[0]}`));
      if (steps.length > 1) svg.append(drawn("text", { x: width - right, y: height - 4, "text-anchor": "end", class: "tick" }, `${steps[steps.length - 1]}`));
    }
    const legend = element("ul", undefined, "legend");
    for (const one of series) {
      const item = element("li", undefined, one.style), swatch = drawn("svg", { class: `swatch series ${one.style}`, viewBox: "0 0 28 14" });
      swatch.append(drawn("polyline", { points: "2,7 26,7" }));
      const last = one.values.filter((value) => value != null).pop();
      item.append(swatch, element("span", `${one.name}${last == null ? "" : ` ${format(last)}`}`));
      legend.append(item);
    }
    svg.setAttribute("aria-label", series.map((one) => one.name).join(", "));
    host.replaceChildren(legend, svg);
  }

  function showStream(stream) {
    at("stream").hidden = false;
    at("name").textContent = stream.name;
    pill(at("guard"), stream.guard || "put away");
    const unsaved = stream.unsaved_updates ? `${stream.unsaved_updates} change${stream.unsaved_updates === 1 ? "" : "s"} not saved yet.` : model.durable ? "All of it is saved." : "It is lost when the service ends.";
    at("state").textContent = stream.resident ? `${stream.step} batches, version ${stream.version}, ${size(stream.bytes)}. ${unsaved}` : "This stream is put away. It comes back with its next request.";
    for (const button of document.querySelectorAll("[data-action]")) {
      button.disabled = (button.dataset.action === "freeze" && stream.guard === "frozen") || (button.dataset.action === "resume" && stream.guard !== "frozen");
    }
    const history = stream.history || [], steps = history.map((point) => point.step), of = (name) => history.map((point) => point[name]);
    const marks = history.flatMap((point, i) => (point.boundary ? [i] : []));
    const known = (name, values, style) => (values.some((value) => value != null) ? [{ name, values, style }] : []);
    plot(at("confidence"), [...known("adapted", of("confidence"), "s1 best"), ...known("unadapted", of("source_confidence"), "s0"), ...known("threshold", of("threshold"), "s8")], marks, steps, number, 1);
    const shares = [...known("selected", of("selected"), "s3"), ...known("disagreement", of("disagreement"), "s4")];
    at("sharing").hidden = !shares.length;
    if (shares.length) plot(at("shares"), shares, marks, steps, percent, 1);
    plot(at("latency"), known("batch", of("seconds").map((value) => (value == null ? null : 1000 * value)), "s5"), marks, steps, (value) => `${value.toFixed(value && value < 10 ? 1 : 0)} ms`);
    const seen = stream.seen || [];
    at("pictures-part").hidden = !seen.length;
    at("pictures").replaceChildren(...seen.slice().reverse().map((one) => {
      const figure = element("figure"), image = element("img");
      image.src = one.picture;
      image.alt = called(one.label);
      figure.append(image, element("span", `${called(one.source_label)} ${percent(one.source_confidence)}`, "before"),
        element("span", `${called(one.label)} ${percent(one.confidence)}`, one.label === one.source_label ? "after" : "after changed"));
      return figure;
    }));
    const events = (stream.events || []).slice(-12).reverse();
    at("events").replaceChildren(...(events.length ? events : [{ kind: "none", words: "Nothing has happened yet." }]).map((event) => {
      const when = event.time ? `${new Date(1000 * event.time).toLocaleTimeString()}, batch ${event.step}, ` : "";
      return element("li", event.time ? `${when}${event.kind}: ${event.words}` : event.words, ["roll-back", "frozen", "lost", "blank", "not saved"].includes(event.kind) ? "warn" : "");
    }));
  }

  async function look() {
    clearTimeout(timer);
    try {
      showStreams(await ask("/streams"));
      if (chosen) showStream(await ask(`/streams/${encodeURIComponent(chosen)}`));
      else at("stream").hidden = true;
      trouble(null);
    } catch (error) { trouble(error); }
    clearTimeout(timer);
    timer = setTimeout(look, document.hidden ? 5000 : 1000);
  }

  async function act(action) {
    if (action === "reset" && !confirm(`Forget all that ${chosen} has learned?`)) return;
    try {
      await ask(`/streams/${encodeURIComponent(chosen)}/${action}`, { method: "POST" });
      await look();
    } catch (error) { trouble(error); }
  }

  async function submit(event) {
    event.preventDefault();
    const file = at("file").files[0];
    if (!file || !model) return;
    const query = new URLSearchParams({ stream: chosen || "default", adapt: at("learn").checked, source: true });
    try {
      const said = await ask(`/v2/models/${encodeURIComponent(model.name)}/infer?${query}`, { method: "POST", headers: { "Content-Type": file.type || "application/octet-stream" }, body: file });
      const output = (name) => said.outputs.find((one) => one.name === name).data;
      const bars = (title, values, style) => {
        const best = values.map((value, label) => [value, label]).sort((a, b) => b[0] - a[0]).slice(0, 3);
        return [element("div", title, "head"), ...best.map(([value, label], i) => {
          const bar = element("div", undefined, `bar ${style}${i ? "" : " best"}`), track = element("span", undefined, "bar-track"), filled = element("span");
          filled.style.width = `${(100 * value).toFixed(1)}%`;
          track.append(filled);
          bar.append(element("span", called(label), "bar-label"), track, element("span", percent(value), "bar-value"));
          return bar;
        })];
      };
      at("bars").replaceChildren(...bars("before adaptation", output("source_probabilities"), "s0"), ...bars("now", output("probabilities"), "s1"));
      at("shown").src = URL.createObjectURL(file);
      at("answer").hidden = false;
      await look();
    } catch (error) { trouble(error); }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const name = () => { at("theme-name").textContent = dark() ? "Light" : "Dark"; };
    at("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; remember("ctta-theme", root.dataset.theme); name(); });
    name();
    at("login").addEventListener("submit", (event) => { event.preventDefault(); token = at("token").value.trim(); remember("ctta-token", token); look(); });
    for (const button of document.querySelectorAll("[data-action]")) button.addEventListener("click", () => act(button.dataset.action));
    at("ask").addEventListener("submit", submit);
    look();
  });
})();
