"use strict";
// Script for reporting/attention/page.py: select a sentence, kind of attention, layer and head.
{
  const byId = id => document.getElementById(id);
  const sentences = JSON.parse(byId("attention-data").textContent);
  const controls = {sentence: byId("sentence"), kind: byId("kind"), layer: byId("layer"),
    head: byId("head")};
  const LEVEL = Object.fromEntries([...ATTENTION_LEVELS].map((level, index) => [level, index]));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const MEAN = -1, ALIGNMENT = -2;  // special values of the head control
  const THUMBNAIL = 64;  // pixels; the maps of longer sentences are downsampled

  const option = (text, value) => new Option(text, value);
  const fill = (select, texts, value) => {
    select.replaceChildren(...texts.map(([text, key]) => option(text, key)));
    select.value = value;
  };
  const clip = text => text.length > 80 ? `${text.slice(0, 80)}…` : text;
  const sentence = () => sentences[controls.sentence ? +controls.sentence.value : 0];
  const kind = () => sentence().kinds[+controls.kind.value];
  const isMain = () => +controls.kind.value === 0;
  const join = heads => heads.map(head => head + 1).join(", ");

  // Weights of one head, or the mean of several, as levels from 0 to 63.
  const levels = (map, layer, heads) => {
    const size = map.rows.length * map.columns.length;
    return Array.from({length: size}, (_, i) => {
      let sum = 0;
      for (const head of heads) sum += LEVEL[map.weights[(layer * map.nHeads + head) * size + i]];
      return Math.round(sum / heads.length);
    });
  };
  const chosenHeads = () => {
    const head = +controls.head.value;
    if (head === ALIGNMENT) return sentence().heads;
    return head === MEAN ? [...Array(kind().nHeads).keys()] : [head];
  };
  const headName = (map, head) => head === ALIGNMENT
    ? `mean of heads ${join(sentence().heads)} (alignment)`
    : head === MEAN ? "mean of all heads" : `head ${head + 1}`;

  const fillHeads = value => {
    const map = kind(), choices = [];
    const {heads, layer} = sentence(), isAlignmentLayer = isMain() && +controls.layer.value === layer;
    if (isAlignmentLayer && heads.length > 1 && heads.length < map.nHeads) choices.push(ALIGNMENT);
    if (map.nHeads > 1) choices.push(MEAN);
    for (let head = 0; head < map.nHeads; head++) choices.push(head);
    const initial = !isAlignmentLayer ? choices[0]
      : heads.length === 1 ? heads[0] : choices[0];
    fill(controls.head, choices.map(head => [headName(map, head), head]),
      choices.includes(value) ? value : initial);
    controls.head.disabled = choices.length === 1;
  };
  const fillLayers = () => {
    const map = kind(), n = map.nLayers, {layer} = sentence();
    const names = Array.from({length: n}, (_, i) =>
      [`layer ${i + 1}${isMain() && i === layer && n > 1 ? " (alignment)" : ""}`, i]);
    fill(controls.layer, names, isMain() ? layer : n - 1);
    controls.layer.disabled = n === 1;
    fillHeads();
  };
  const fillKinds = value => {
    const names = sentence().kinds.map((map, index) => [map.name, index]);
    fill(controls.kind, names, names[value] ? value : 0);
    controls.kind.disabled = names.length === 1;
    byId("source").textContent = sentence().source;
    byId("target").textContent = sentence().target;
    fillLayers();
  };

  const draw = () => {
    const map = kind(), layer = +controls.layer.value, width = map.columns.length;
    const cells = levels(map, layer, chosenHeads()).map(level => ATTENTION_LEVELS[level]);
    const title = sentence().detail === "alignment" ? map.name : [map.name, `layer ${layer + 1}`,
      ...(sentence().detail === "layers" ? ["mean of all heads"]
        : [headName(map, +controls.head.value)])].join(", ");
    const weights = map.rows.map((_, row) => cells.slice(row * width, (row + 1) * width).join(""));
    const {rows, columns, axes} = map;
    byId("map").replaceChildren(drawAttention({title, axes, rows, columns, weights}, title));
    byId("status").textContent = title;
    for (const button of byId("overview").querySelectorAll("button")) {
      const isShown = +button.dataset.layer === layer && chosenHeads().length === 1
        && +button.dataset.head === chosenHeads()[0];
      button.setAttribute("aria-pressed", isShown);
    }
  };

  const paint = (canvas, map, layer, head) => {
    const nRows = map.rows.length, nColumns = map.columns.length;
    const width = Math.min(nColumns, THUMBNAIL), height = Math.min(nRows, THUMBNAIL);
    const cells = levels(map, layer, [head]), context = canvas.getContext("2d");
    canvas.width = width;
    canvas.height = height;
    context.fillStyle = getComputedStyle(canvas).getPropertyValue("--blue");
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        let most = 0;  // a downsampled cell shows the largest weight
        const rowEnd = Math.floor((y + 1) * nRows / height);
        const columnEnd = Math.floor((x + 1) * nColumns / width);
        for (let row = Math.floor(y * nRows / height); row < rowEnd; row++) {
          for (let column = Math.floor(x * nColumns / width); column < columnEnd; column++) {
            most = Math.max(most, cells[row * nColumns + column]);
          }
        }
        context.globalAlpha = most / (ATTENTION_LEVELS.length - 1);
        context.fillRect(x, y, 1, 1);
      }
    }
  };
  const drawOverview = () => {
    const map = kind(), hasHeads = map.nLayers * map.nHeads > 1;
    const groups = Array.from({length: map.nLayers}, (_, layer) => {
      const group = document.createElement("div"), name = document.createElement("span");
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", `layer ${layer + 1}`);
      name.className = "name";
      name.textContent = `layer ${layer + 1}`;
      group.append(name);
      for (let head = 0; head < map.nHeads; head++) {
        const button = document.createElement("button"), canvas = document.createElement("canvas");
        button.type = "button";
        button.dataset.layer = layer;
        button.dataset.head = head;
        button.title = `layer ${layer + 1}, head ${head + 1}`;
        button.setAttribute("aria-label", button.title);
        canvas.setAttribute("aria-hidden", "true");
        button.append(canvas);
        button.addEventListener("click", () => {
          controls.layer.value = layer;
          fillHeads(head);
          draw();
        });
        group.append(button);
      }
      return group;
    });
    byId("overview").replaceChildren(...(hasHeads ? groups : []));
    document.querySelector(".overview-title").hidden = !hasHeads;
    document.querySelector(".attention-page .intro").hidden = !hasHeads;
    paintAll();
  };
  const paintAll = () => {
    for (const button of byId("overview").querySelectorAll("button")) {
      paint(button.firstChild, kind(), +button.dataset.layer, +button.dataset.head);
    }
  };
  const drawAll = () => {
    drawOverview();
    draw();
  };

  if (controls.sentence) {
    fill(controls.sentence, sentences.map(({source}, index) => [clip(source), index]), 0);
    controls.sentence.addEventListener("change", () => {
      fillKinds(+controls.kind.value);
      drawAll();
    });
  }
  controls.kind.addEventListener("change", () => {
    fillLayers();
    drawAll();
  });
  controls.layer.addEventListener("change", () => {
    fillHeads(+controls.head.value);
    draw();
  });
  controls.head.addEventListener("change", draw);
  document.querySelector(".controls").addEventListener("submit", event => event.preventDefault());
  dark.addEventListener("change", paintAll);
  byId("attention").hidden = !sentences.length;
  if (sentences.length) {
    fillKinds(0);
    drawAll();
  }
}
