"use strict";
// The page is complete without this: it adds a theme button, values under the pointer and a legend that highlights.
(() => {
  const root = document.documentElement;

  // A page from disk may have no storage at all; the choice then lasts as long as the page.
  const recall = () => { try { return localStorage.getItem("ctta-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("ctta-theme", theme); } catch { /* no storage */ } };
  const stored = recall();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored; // before the first paint

  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

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

  function legends() {
    for (const legend of document.querySelectorAll(".legend")) {
      const chart = document.getElementById(legend.dataset.for);
      for (const item of legend.children) {
        const marks = chart.querySelectorAll(`[data-series="${item.dataset.series}"]`);
        const light = (on) => {
          chart.classList.toggle("focus", on);
          for (const mark of marks) mark.classList.toggle("lit", on);
        };
        item.addEventListener("pointerenter", () => light(true));
        item.addEventListener("pointerleave", () => light(false));
      }
    }
  }

  function fill(tip, chart, index) {
    const row = (text, bold) => {
      const line = document.createElement(bold ? "b" : "div");
      line.textContent = text;
      return line;
    };
    const shown = (value) => value.toFixed(chart.unit ? 1 : 3) + chart.unit;
    tip.replaceChildren(row(`batch ${chart.steps[index] + 1} · ${chart.domains[index]}`, true));
    for (const series of chart.series) {
      const value = series.values[index];
      if (value != null) tip.append(row(`${series.label}  ${shown(value)}`));
    }
  }

  function tips() {
    const charts = JSON.parse(document.getElementById("data").textContent).charts;
    const tip = document.getElementById("tip");
    for (const svg of document.querySelectorAll("svg.chart[data-steps]")) {
      const chart = charts[svg.id];
      const cursor = svg.querySelector(".cursor");
      const { left, right, steps } = svg.dataset;
      const hide = () => { tip.hidden = true; svg.classList.remove("hover"); };
      svg.addEventListener("pointerleave", hide);
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
        const index = Math.floor(((x - left) / (right - left)) * steps);
        if (index < 0 || index >= chart.steps.length) return hide();
        const middle = Number(left) + ((index + 0.5) / steps) * (right - left);
        cursor.setAttribute("x1", middle);
        cursor.setAttribute("x2", middle);
        svg.classList.add("hover");
        fill(tip, chart, index);
        tip.hidden = false;
        const roomy = event.clientX + tip.offsetWidth + 24 < innerWidth;
        tip.style.left = `${roomy ? event.clientX + 16 : Math.max(4, event.clientX - tip.offsetWidth - 16)}px`;
        tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)}px`;
      });
    }
  }

  document.addEventListener("DOMContentLoaded", () => { themeButton(); legends(); tips(); });
})();
