"use strict";
// Without this script, legends show the latest values; with it, the values at the pointer.
for (const chart of document.querySelectorAll(".chart")) {
  const svg = chart.querySelector("svg"), pointer = svg.querySelector(".pointer");
  if (!pointer) continue;
  const lines = [...svg.querySelectorAll(".curve:not(.faint)")];
  const values = [...chart.querySelectorAll(".legend b")], at = chart.querySelector(".at");
  const latest = [...values, at].map(element => element.textContent);
  const data = chart.dataset, low = +data.low, high = +data.high, digits = +data.digits;
  const categories = data.categories ? JSON.parse(data.categories) : null;
  const area = svg.querySelectorAll(".grid"), left = +area[0].getAttribute("x1");
  const right = +area[0].getAttribute("x2"), bottom = +area[0].getAttribute("y1");
  const top = +area[area.length - 1].getAttribute("y1");
  const start = +data.start, scale = (right - left) / (data.end - start);
  const format = (value, n) => value.toLocaleString("en",
    {minimumFractionDigits: n, maximumFractionDigits: n});
  svg.setAttribute("aria-label", svg.querySelector("title").textContent);
  svg.removeAttribute("aria-labelledby");
  svg.querySelector("title").remove();  // it would cover the chart as a tooltip
  const follow = event => {
    const box = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
    const pointed = (event.clientX - box.left) / box.width * width;
    let position = start + (Math.min(right, Math.max(left, pointed)) - left) / scale;
    if (categories) position = Math.min(categories.length - 1, Math.max(0, Math.round(position)));
    const x = left + (position - start) * scale;
    pointer.classList.add("shown");
    pointer.setAttribute("x1", x);
    pointer.setAttribute("x2", x);
    at.textContent = `${data.xName} ${categories ? categories[position] : format(position, 0)}`;
    lines.forEach((line, index) => {
      const points = [...line.points];
      const near = points.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
      const value = low + (near.y - bottom) / (top - bottom) * (high - low);
      const isMissing = categories && Math.abs(near.x - x) > 1;
      values[index].textContent = isMissing ? "" : format(value, digits) + data.unit;
    });
  };
  const leave = () => {
    pointer.classList.remove("shown");
    [...values, at].forEach((element, index) => { element.textContent = latest[index]; });
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", leave);
}
