"""HTML page for the report: template, style sheet and script, all inline."""

from html import escape
from string import Template

from mtcli.reporting.messages import strip_control

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
$body</main>
<script>$script</script>
</body>
</html>
""")

_STYLE = """
:root {
  --page: #fbfaf7; --card: #ffffff; --text: #20252b; --muted: #5c6570; --border: #e4e2dc;
  --blue: #2b6194; --orange: #a8501c; --green: #2f7350; --purple: #75519a; --red: #b0322b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1b1f23; --text: #e7e6e2; --muted: #a0a8b1; --border: #30353b;
    --blue: #7db3e3; --orange: #e59a66; --green: #78c79b; --purple: #bd9fe0; --red: #f08b82;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; -webkit-text-size-adjust: 100%;
}
main { max-width: 1120px; margin: 0 auto; padding: 2.25rem 1rem 4rem; }
h1, h2, h3 { font-weight: 600; line-height: 1.25; margin: 0; text-wrap: balance; }
h1 { font-size: 1.6rem; letter-spacing: -0.01em; }
h2 { font-size: 1.15rem; margin: 3rem 0 1rem; }
h3 { font-size: 1rem; }
p { margin: 0; }
.muted, figcaption, dt, th, summary, .at { color: var(--muted); }
.state {
  display: inline-block; padding: 0 .7em; border: 1px solid; border-radius: 1em;
  font-size: .85rem; font-weight: 600; margin-left: .6rem; vertical-align: .2em;
}
.state.finished { color: var(--green); }
.state.training { color: var(--blue); }
.bar { height: 6px; border-radius: 3px; background: var(--border); margin: 1.25rem 0 .5rem; }
.bar span { display: block; height: 100%; border-radius: 3px; background: var(--blue); }
.bar.finished span { background: var(--green); }
.tiles { display: grid; gap: .75rem; margin: 1.5rem 0 0;
  grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.tiles div, .chart, .sample, .panel {
  background: var(--card); border: 1px solid var(--border); border-radius: 10px;
}
.tiles div { padding: .8rem 1rem; }
.tiles dt { font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
.tiles dd small { display: block; font-size: .85rem; font-weight: 400; color: var(--muted); }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.charts + .charts { margin-top: 1rem; }
.charts.side { grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); }
.chart { margin: 0; padding: 1rem 1rem .5rem; min-width: 0; container-type: inline-size; }
.chart h3 { color: var(--text); }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: .85rem; margin: .15rem 0 .5rem; }
.legend b { color: var(--text); font-weight: 600; }
.legend .at { margin-left: auto; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; border-radius: .25em;
  background: var(--color); margin-right: .45em; vertical-align: -.05em; }
.blue { --color: var(--blue); } .orange { --color: var(--orange); }
.green { --color: var(--green); } .purple { --color: var(--purple); }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--muted); font-size: 15px; }
@container (min-width: 420px) { svg text { font-size: 11px; } }
svg .x { text-anchor: middle; } svg .y { text-anchor: end; }
.grid { stroke: var(--border); vector-effect: non-scaling-stroke; }
.curve { fill: none; stroke: var(--color); stroke-width: 2; stroke-linejoin: round;
  vector-effect: non-scaling-stroke; }
.faint { stroke-width: 1; opacity: .3; }
circle { fill: var(--color); }
.marker { stroke: var(--red); stroke-width: 1.5; stroke-dasharray: 4 3;
  vector-effect: non-scaling-stroke; }
.pointer { stroke: var(--muted); vector-effect: non-scaling-stroke; }
.warning { color: var(--red); }
.sample { padding: 1rem; margin: 0 0 1rem; }
.sample dl, .panel dl { display: grid; gap: .3rem 1rem; margin: 0; }
.sample dl { grid-template-columns: 9.5rem 1fr; }
.panel dl { grid-template-columns: max-content 1fr; }
.sample dt { font-size: .85rem; line-height: 1.8; }
.sample summary { font-size: .85rem; margin: .3rem 0; }
.sample details + dl { margin-top: .3rem; }
.intro { margin: -.5rem 0 1rem; }
dd { margin: 0; }
.sample hr { border: 0; border-top: 1px solid var(--border); margin: .75rem 0; }
.translations dd { color: var(--muted); }
.translations b { color: var(--text); font-weight: 500; }
.panel { padding: 1rem; margin: 0 0 1rem; }
.panel ul { margin: 0; padding: 0; list-style: none; }
.panel li + li { margin-top: .3rem; }
summary { cursor: pointer; }
details > :not(summary) { margin-top: .75rem; }
pre { margin: 0; white-space: pre-wrap; font: .85rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: right; padding: .3rem .5rem; border-bottom: 1px solid var(--border); }
th { font-weight: 500; }
tr:last-child td { border-bottom: 0; }
tr.best td { color: var(--green); font-weight: 600; }
@media (max-width: 480px) {
  .tiles { grid-template-columns: 1fr 1fr; }
  .sample dl { grid-template-columns: 1fr; gap: 0; }
  .sample dd { margin-bottom: .5rem; }
  th, td { padding: .3rem .2rem; }
}
"""

# Without the script, legends show the latest values; with it, the values at the pointer.
_SCRIPT = """
for (const chart of document.querySelectorAll(".chart")) {
  const svg = chart.querySelector("svg"), pointer = svg.querySelector(".pointer");
  const lines = [...svg.querySelectorAll(".curve:not(.faint)")];
  const values = [...chart.querySelectorAll(".legend b")], at = chart.querySelector(".at");
  const latest = [...values, at].map(element => element.textContent);
  const data = chart.dataset, low = +data.low, high = +data.high, digits = +data.digits;
  const area = svg.querySelectorAll(".grid"), left = +area[0].getAttribute("x1");
  const right = +area[0].getAttribute("x2"), bottom = +area[0].getAttribute("y1");
  const top = +area[area.length - 1].getAttribute("y1");
  const format = (value, n) => value.toLocaleString("en",
    {minimumFractionDigits: n, maximumFractionDigits: n});
  svg.setAttribute("aria-label", svg.querySelector("title").textContent);
  svg.removeAttribute("aria-labelledby");
  svg.querySelector("title").remove();  // it would cover the chart as a tooltip
  const follow = event => {
    const box = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
    const pointed = (event.clientX - box.left) / box.width * width;
    const x = Math.min(right, Math.max(left, pointed));
    pointer.setAttribute("x1", x);
    pointer.setAttribute("x2", x);
    at.textContent = "step " + format((x - left) / (right - left) * data.steps, 0);
    lines.forEach((line, index) => {
      const points = [...line.points];
      const near = points.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
      const value = low + (near.y - bottom) / (top - bottom) * (high - low);
      values[index].textContent = format(value, digits) + data.unit;
    });
  };
  const leave = () => {
    pointer.setAttribute("x1", -9);
    pointer.setAttribute("x2", -9);
    [...values, at].forEach((element, index) => { element.textContent = latest[index]; });
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", leave);
}
"""


def render_page(title: str, body: str) -> str:
    """Return a complete HTML page around the HTML `body`, without control characters."""
    text = _PAGE.substitute(title=escape(title), style=_STYLE, script=_SCRIPT, body=body)
    return strip_control(text)
