"use strict";
// Draw a map as a table. Each row of `weights` has one character per weight. `name` is the label
// for screen readers and must be unique within the page.
const ATTENTION_LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const drawAttention = (map, name) => {
  const make = (tag, text = "", className = "") => {
    const node = document.createElement(tag);
    node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const label = (text, scope) => {
    const cell = make("th");
    cell.scope = scope;
    cell.append(make("bdi", text));
    return cell;
  };
  const table = make("table", "", "attention"), head = make("tr"), body = make("tbody");
  table.append(make("caption", `${map.title}. ${map.axes}`));
  head.append(make("td"), ...map.columns.map(text => label(text, "col")));
  table.append(make("thead"), body);
  table.tHead.append(head);
  map.weights.forEach((weights, index) => {
    const row = make("tr");
    row.append(label(map.rows[index], "row"));
    [...weights].forEach((level, column) => {
      const weight = ATTENTION_LEVELS.indexOf(level) / (ATTENTION_LEVELS.length - 1);
      const percent = `${Math.round(100 * weight)}%`, cell = make("td");
      cell.style.setProperty("--weight", weight.toFixed(3));
      cell.title = `${map.rows[index]} to ${map.columns[column]}: ${percent}`;
      cell.append(make("span", percent, "visually-hidden"));
      row.append(cell);
    });
    body.append(row);
  });
  const region = make("div", "", "scroll");
  region.tabIndex = 0;
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", name);
  region.append(table);
  return region;
};
