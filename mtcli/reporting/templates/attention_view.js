"use strict";
// Return an element that shows the attention of a sentence (`compact_attention` in
// reporting/attention/compact.py), with controls for kind, layer and head. The labels of the maps
// for screen readers start with `name`. `kindIndex` is the kind that is shown first.
const attentionView = ({labels, kinds}, name = "", kindIndex = 0) => {
  const MEAN = -1, ALIGNMENT = -2;  // special values of the head control
  const THUMBNAIL = 64;  // pixels; the maps of longer sentences are downsampled
  const LEVEL = Object.fromEntries([...ATTENTION_LEVELS].map((level, index) => [level, index]));
  const make = (tag, className = "", text = "") => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text) node.textContent = text;
    return node;
  };
  const control = text => {
    const label = make("label", "", text), select = make("select");
    label.append(select);
    return select;
  };
  const view = make("div", "attention-view"), form = make("form", "controls");
  const kind = control("Attention"), layer = control("Layer"), head = control("Head");
  const status = make("p", "visually-hidden"), map = make("div", "map");
  const overviewTitle = make("p", "overview-title", "All layers and heads");
  const intro = make("p", "muted", "Each row is a layer. Select a map to enlarge it.");
  const overview = make("div", "overview");
  status.setAttribute("role", "status");
  form.append(...[kind, layer, head].map(select => select.parentNode));
  view.append(form, status, map, overviewTitle, intro, overview);

  const shown = () => kinds[+kind.value];
  const nRows = () => labels[shown().rows].length, nColumns = () => labels[shown().columns].length;
  const fill = (select, options, value) => {
    select.replaceChildren(...options.map(([text, key]) => new Option(text, key)));
    select.value = value;
    select.disabled = options.length === 1;
  };

  // Weights of one head, or the mean of several, as levels from 0 to 63.
  const levels = (shownLayer, heads) => {
    const current = shown(), size = nRows() * nColumns();
    current.text ??= current.weights.replace(/~(.)/g, (_, n) => "A".repeat(LEVEL[n]));
    return Array.from({length: size}, (_, i) => {
      let sum = 0;
      for (const each of heads) {
        sum += LEVEL[current.text[(shownLayer * current.nHeads + each) * size + i]];
      }
      return Math.round(sum / heads.length);
    });
  };
  const chosenHeads = () => {
    const value = +head.value;
    if (value === ALIGNMENT) return shown().alignment;
    return value === MEAN ? [...Array(shown().nHeads).keys()] : [value];
  };
  const headName = value => {
    if (value === ALIGNMENT) {
      return `mean of heads ${shown().alignment.map(each => each + 1).join(", ")} (alignment)`;
    }
    return value === MEAN || shown().detail === "layers" ? "mean of all heads" : `head ${value + 1}`;
  };

  const fillHeads = value => {
    const {nHeads, alignment} = shown(), choices = [];
    const chosen = +layer.value === shown().layer && alignment ? alignment : [];
    if (chosen.length > 1 && chosen.length < nHeads) choices.push(ALIGNMENT);
    if (nHeads > 1) choices.push(MEAN);
    for (let each = 0; each < nHeads; each++) choices.push(each);
    const initial = chosen.length === 1 ? chosen[0] : choices[0];
    fill(head, choices.map(each => [headName(each), each]), choices.includes(value) ? value : initial);
  };
  const fillLayers = () => {
    const {nLayers, alignment, detail, layer: initial} = shown();
    const options = Array.from({length: nLayers}, (_, i) =>
      [`layer ${i + 1}${alignment && i === initial && nLayers > 1 ? " (alignment)" : ""}`, i]);
    fill(layer, options, initial);
    for (const select of [layer, head]) select.parentNode.hidden = detail === "map";
    fillHeads();
  };

  const draw = () => {
    const {name: kindName, title: fixedTitle, axes, rows, columns} = shown(), width = nColumns();
    const title = fixedTitle
      ?? `${kindName}, layer ${+layer.value + 1}, ${headName(+head.value)}`;
    const cells = levels(+layer.value, chosenHeads()).map(level => ATTENTION_LEVELS[level]);
    const weights = labels[rows].map((_, row) =>
      cells.slice(row * width, (row + 1) * width).join(""));
    const table = {title, axes, rows: labels[rows], columns: labels[columns], weights};
    map.replaceChildren(drawAttention(table, name ? `${name}: ${title}` : title));
    status.textContent = title;
    for (const button of overview.querySelectorAll("button")) {
      const isShown = button.dataset.layer === layer.value && chosenHeads().length === 1
        && +button.dataset.head === chosenHeads()[0];
      button.setAttribute("aria-pressed", isShown);
    }
  };

  const paint = (canvas, shownLayer, shownHead) => {
    const width = Math.min(nColumns(), THUMBNAIL), height = Math.min(nRows(), THUMBNAIL);
    const cells = levels(shownLayer, [shownHead]), context = canvas.getContext("2d");
    canvas.width = width;
    canvas.height = height;
    context.fillStyle = getComputedStyle(canvas).getPropertyValue("--blue");
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        let most = 0;  // a downsampled cell shows the largest weight
        const rowEnd = Math.floor((y + 1) * nRows() / height);
        const columnEnd = Math.floor((x + 1) * nColumns() / width);
        for (let row = Math.floor(y * nRows() / height); row < rowEnd; row++) {
          for (let column = Math.floor(x * nColumns() / width); column < columnEnd; column++) {
            most = Math.max(most, cells[row * nColumns() + column]);
          }
        }
        context.globalAlpha = most / (ATTENTION_LEVELS.length - 1);
        context.fillRect(x, y, 1, 1);
      }
    }
  };
  const paintAll = () => {
    for (const button of overview.querySelectorAll("button")) {
      paint(button.firstChild, +button.dataset.layer, +button.dataset.head);
    }
  };
  const thumbnail = (shownLayer, shownHead) => {
    const button = make("button"), canvas = make("canvas");
    button.type = "button";
    button.dataset.layer = shownLayer;
    button.dataset.head = shownHead;
    button.title = `layer ${shownLayer + 1}, ${headName(shownHead)}`;
    button.setAttribute("aria-label", button.title);
    canvas.setAttribute("aria-hidden", "true");
    button.append(canvas);
    button.addEventListener("click", () => {
      layer.value = shownLayer;
      fillHeads(shownHead);
      draw();
    });
    return button;
  };
  const drawOverview = () => {
    const {nLayers, nHeads} = shown(), hasHeads = nLayers * nHeads > 1;
    const groups = Array.from({length: hasHeads ? nLayers : 0}, (_, i) => {
      const group = make("div"), label = `layer ${i + 1}`;
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", label);
      group.append(make("span", "name", label),
        ...Array.from({length: nHeads}, (_, each) => thumbnail(i, each)));
      return group;
    });
    overview.replaceChildren(...groups);
    overviewTitle.hidden = intro.hidden = !hasHeads;
  };
  const drawAll = () => {
    drawOverview();
    draw();
    requestAnimationFrame(paintAll);  // the color is known only after the view is in the page
  };

  kind.addEventListener("change", () => {
    fillLayers();
    drawAll();
  });
  layer.addEventListener("change", () => {
    fillHeads(+head.value);
    draw();
  });
  head.addEventListener("change", draw);
  form.addEventListener("submit", event => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
  fill(kind, kinds.map((each, index) => [each.name, index]), kinds[kindIndex] ? kindIndex : 0);
  fillLayers();
  drawAll();
  return view;
};
