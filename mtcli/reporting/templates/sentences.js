"use strict";
// Sentence browser of the evaluation report. Text is inserted only as text nodes.
{
  const data = JSON.parse(document.getElementById("sentence-data").textContent);
  const {systems, metric, findings, lines, maps} = data;
  const PAGE_SIZE = 25, MAX_CHARACTERS = 600, MAX_WORDS = 400;
  const byId = id => document.getElementById(id);
  const search = byId("search"), sort = byId("sort"), filter = byId("filter"), mark = byId("mark");
  const list = byId("sentence-list"), status = byId("status");
  let shown = [], page = 0;

  const element = (tag, text = "", className = "") => {
    const node = document.createElement(tag);
    if (text) node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const addOptions = (select, options) => {
    for (const [value, text] of options) select.append(new Option(text, value));
  };

  // A line is [source, references, hypotheses, scores, findings of each hypothesis].
  const order = lines.map((_, index) => index);
  const difference = line => Math.max(...line[3]) - Math.min(...line[3]);
  const sortKeys = {
    line: (line, index) => index,
    difference: line => -difference(line),
    longest: line => -(line[0] ?? line[1][0]).length,
  };
  const sortOptions = [];
  if (systems.length > 1) sortOptions.push(["difference", "largest difference between systems"]);
  systems.forEach((name, index) => {
    const of = systems.length > 1 ? ` of ${name}` : "";
    sortKeys[`lowest-${index}`] = line => line[3][index];
    sortKeys[`highest-${index}`] = line => -line[3][index];
    sortOptions.push([`lowest-${index}`, `lowest ${metric}${of}`]);
    sortOptions.push([`highest-${index}`, `highest ${metric}${of}`]);
    if (index) {
      sortKeys[`worse-${index}`] = line => line[3][index] - line[3][0];
      sortKeys[`better-${index}`] = line => line[3][0] - line[3][index];
      sortOptions.push([`better-${index}`, `${name} better than ${systems[0]}`]);
      sortOptions.push([`worse-${index}`, `${name} worse than ${systems[0]}`]);
    }
  });
  sortOptions.push(["line", "line number"], ["longest", "longest first"]);
  addOptions(sort, sortOptions);

  const filters = {all: () => true, map: (line, index) => index in maps,
    different: line => new Set(line[2]).size > 1};
  const filterOptions = [["all", "all sentences"]];
  if (systems.length > 1) filterOptions.push(["different", "different translations"]);
  findings.forEach((name, finding) => {
    const n = lines.filter(line => line[4].some(found => found.includes(finding))).length;
    filters[`finding-${finding}`] = line => line[4].some(found => found.includes(finding));
    if (n) filterOptions.push([`finding-${finding}`, `${name} (${n.toLocaleString("en")})`]);
  });
  const nMaps = Object.keys(maps).length;
  if (nMaps) filterOptions.push(["map", `with attention map (${nMaps})`]);
  addOptions(filter, filterOptions);
  addOptions(mark, [["reference", "the reference"],
    ...(systems.length > 1 ? [["system", systems[0]]] : []), ["none", "nothing"]]);

  // Text in scripts without spaces is split into characters.
  const single = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}";
  const WORDS = new RegExp(`[${single}]|\\s+|[^\\s${single}]+`, "gu");
  const words = text => text.match(WORDS) ?? [];
  const isSpace = word => !word.trim();

  // For each word of a, return whether a longest common subsequence of a and b contains it. Return
  // null for long texts, because the time is quadratic.
  const commonWords = (a, b) => {
    if (a.length > MAX_WORDS || b.length > MAX_WORDS) return null;
    const width = b.length + 1, lengths = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i--)
      for (let j = b.length - 1; j >= 0; j--)
        lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    const common = new Array(a.length).fill(false);
    for (let i = 0, j = 0; i < a.length && j < b.length;) {
      if (a[i] === b[j]) { common[i] = true; i++; j++; }
      else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
      else j++;
    }
    return common;
  };

  const markedText = (text, other) => {
    const fragment = document.createDocumentFragment();
    const tokens = words(text), plain = tokens.filter(word => !isSpace(word));
    const common = other === null ? null
      : commonWords(plain, words(other).filter(word => !isSpace(word)));
    if (!common) {
      fragment.append(text);
      return fragment;
    }
    let index = 0, run = null;
    for (const token of tokens) {
      const isMarked = isSpace(token) ? false : !common[index++];
      const kind = isMarked ? "mark" : "text";
      if (run?.kind === kind) run.text += token;
      else {
        if (run) appendRun(fragment, run);
        run = {kind, text: token};
      }
    }
    if (run) appendRun(fragment, run);
    return fragment;
  };
  const appendRun = (fragment, run) => {
    fragment.append(run.kind === "mark" ? element("mark", run.text) : run.text);
  };

  const cut = text => {
    const end = text.charCodeAt(MAX_CHARACTERS - 1) >> 10 === 0x36 ? MAX_CHARACTERS - 1
      : MAX_CHARACTERS;  // do not split a surrogate pair
    return text.slice(0, end);
  };
  const addRow = (rows, label, text, other, language) => {
    const term = element("dt"), cell = element("dd");
    term.append(...label);
    cell.dir = "auto";
    if (language) cell.lang = language;
    if (text.length > MAX_CHARACTERS) {
      cell.append(markedText(cut(text), other === null ? null : cut(other)), "…");
      const button = element("button", `Show all ${text.length.toLocaleString("en")} characters`,
        "more");
      button.type = "button";
      button.addEventListener("click", () => {
        cell.replaceChildren(markedText(text, other));
        cell.tabIndex = -1;
        cell.focus();
      });
      cell.append(button);
    } else {
      cell.append(markedText(text, other));
      if (!text) cell.append(element("span", "(empty)", "muted"));
    }
    rows.append(term, cell);
  };

  const card = index => {
    const [source, references, hypotheses, scores, found] = lines[index];
    const article = element("article", "", "sample sentence"), heading = element("h3");
    article.setAttribute("aria-labelledby", heading.id = `line-${index + 1}`);
    heading.tabIndex = -1;
    heading.append(element("span", `Line ${(index + 1).toLocaleString("en")}`));
    if (systems.length > 1) {
      heading.append(element("span",
        `difference ${difference(lines[index]).toFixed(1)} ${metric}`, "score"));
    }
    article.append(heading);
    const rows = element("dl");
    if (source !== null) addRow(rows, ["source"], source, null, data.sourceLanguage);
    references.forEach((reference, number) => {
      const label = references.length > 1 ? `reference ${number + 1}` : "reference";
      addRow(rows, [label], reference, null, data.targetLanguage);
    });
    systems.forEach((name, system) => {
      const label = [element("bdi", name), element("br"),
        element("span", `${metric} ${scores[system].toFixed(1)}`, "score")];
      for (const finding of found[system]) label.push(" ", element("span", findings[finding], "badge"));
      const other = mark.value === "reference" ? references[0]
        : mark.value === "system" && system ? hypotheses[0] : null;
      addRow(rows, label, hypotheses[system], other, data.targetLanguage);
    });
    article.append(rows);
    for (const [system, map] of Object.entries(maps[index] ?? {})) {
      article.append(mapDetails(index, +system, map));
    }
    return article;
  };

  const mapDetails = (index, system, map) => {
    const details = element("details"), summary = element("summary", "Attention");
    if (systems.length > 1) summary.append(" of ", element("bdi", systems[system]));
    details.append(summary);
    details.addEventListener("toggle", () => {
      if (!details.open || details.children.length > 1) return;
      details.append(attentionView(map, `line ${index + 1}, ${systems[system]}`));
    });
    return details;
  };

  const draw = () => {
    const nPages = Math.max(1, Math.ceil(shown.length / PAGE_SIZE));
    page = Math.min(page, nPages - 1);
    const start = page * PAGE_SIZE, end = Math.min(shown.length, start + PAGE_SIZE);
    list.replaceChildren(...shown.slice(start, end).map(card));
    const n = number => number.toLocaleString("en");
    const total = shown.length === lines.length ? `${n(lines.length)} sentences`
      : `${n(shown.length)} of ${n(lines.length)} sentences`;
    status.textContent = shown.length ? `${total}, showing ${n(start + 1)} to ${n(end)}`
      : "no sentences found";
    byId("page-number").textContent = `page ${n(page + 1)} of ${n(nPages)}`;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page === nPages - 1;
  };

  const normalize = text => text.normalize("NFC").toLowerCase();
  let searchable = null;  // lower-case text of each line, computed by the first search
  let timer = 0;
  const update = () => {
    clearTimeout(timer);  // a delayed update would close maps and lose the focus
    const query = normalize(search.value.trim()), number = /^#(\d+)$/.exec(query);
    if (query && !searchable) {
      searchable = lines.map(line => normalize([line[0] ?? "", ...line[1], ...line[2]].join("\n")));
    }
    const matches = index => number ? index + 1 === +number[1]
      : !query || searchable[index].includes(query);
    const keep = filters[filter.value], key = sortKeys[sort.value];
    const keys = lines.map(key);
    shown = order.filter(index => keep(lines[index], index) && matches(index));
    shown.sort((a, b) => keys[a] - keys[b] || a - b);
    page = 0;
    draw();
  };

  const turn = by => {
    page += by;
    draw();
    list.querySelector("h3")?.focus({preventScroll: true});
    byId("sentence-browser").scrollIntoView();
  };
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, 120);
  });
  for (const control of [sort, filter, mark]) control.addEventListener("change", update);
  search.form.addEventListener("submit", event => { event.preventDefault(); update(); });
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("sentence-browser").hidden = false;
  update();
}
