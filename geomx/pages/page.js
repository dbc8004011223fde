"use strict";
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - width - 8);
  const below = event.clientY + 16;
  const top = below + height > innerHeight - 8 ? event.clientY - height - 12 : below;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

document.addEventListener("pointermove", (event) => {
  const target = event.target.closest?.("[data-tip]");
  if (target) showTip(event, target.dataset.tip);
  else if (!event.target.closest?.("svg.chart")) tip.hidden = true;
});

function shape(name, attributes) {
  const element = document.createElementNS("http" + "://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

for (const chart of document.querySelectorAll("svg.chart")) {
  const series = JSON.parse(chart.dataset.hover);
  const focus = chart.querySelector(".focus");
  const clear = () => {
    focus.replaceChildren();
    tip.hidden = true;
  };
  chart.addEventListener("pointerleave", clear);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const distance = (point) => Math.abs(point[0] - x);
    const nearest = series.map((line) =>
      line.points.reduce((best, point) => (distance(point) < distance(best) ? point : best)),
    );
    const closest = nearest.reduce((best, p) => (distance(p) < distance(best) ? p : best));
    focus.replaceChildren(
      shape("line", { x1: closest[0], x2: closest[0], y1: 8, y2: chart.viewBox.baseVal.height - 36 }),
      ...nearest.map((point, i) =>
        shape("circle", { cx: point[0], cy: point[1], r: 4, class: series[i].style }),
      ),
    );
    const lines = nearest.map((point, i) => `${series[i].name}: ${point[3]} at ${point[2]}`);
    showTip(event, lines.join("\n"));
  });
}

document.querySelector(".command button")?.addEventListener("click", async (event) => {
  await navigator.clipboard.writeText(document.querySelector(".command code").textContent);
  event.target.textContent = "copied";
});
