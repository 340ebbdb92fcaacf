"use strict";
// Script for reporting/attention/page.py: show the attention of the selected sentence.
{
  const byId = id => document.getElementById(id);
  const sentences = JSON.parse(byId("attention-data").textContent);
  const choice = byId("sentence"), view = byId("view");
  const clip = text => text.length > 80 ? `${[...text.slice(0, 80)].slice(0, -1).join("")}…` : text;

  const show = index => {
    const kind = view.querySelector("select");  // the first control selects the kind
    byId("source").textContent = sentences[index].source;
    byId("target").textContent = sentences[index].target;
    view.replaceChildren(attentionView(sentences[index], "", kind ? +kind.value : 0));
  };
  if (choice) {
    choice.replaceChildren(...sentences.map(({source}, index) => new Option(clip(source), index)));
    choice.addEventListener("change", () => show(+choice.value));
    choice.form.addEventListener("submit", event => event.preventDefault());
  }
  byId("attention").hidden = !sentences.length;
  if (sentences.length) show(0);
}
