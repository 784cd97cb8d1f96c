"use strict";
// What happened in a run in words, and its main numbers.

const runStory = (told) => {
  const section = fednet.section("story", "What happened");
  const rows = (entries) => fednet.element("div", { class: "scroll", style: "max-width:720px; max-height:none" }, fednet.element("table", {}, fednet.element("tbody", {},
    ...entries.map(([what, value]) => fednet.element("tr", {}, fednet.element("th", { scope: "row", text: what }), fednet.element("td", { text: value, style: "white-space:normal" }))))));
  section.append(...told.words.map((sentence) => fednet.element("p", { class: "story", text: sentence })), rows(told.facts));
};

/** The scenario, the versions and the host of a run. */
const runOrigin = (told) => {
  const section = fednet.section("origin", "Scenario and versions", "The scenario with every default: the same file and seed give the same run.");
  const packages = Object.entries(told.versions.packages).map(([name, version]) => `${name} ${version}`).join(", ");
  const host = Object.entries(told.versions.host).map(([what, value]) => `${what} ${value}`).join(", ");
  section.append(fednet.controls(fednet.button("Save the scenario", () => fednet.download(`${told.name}.yaml`, told.scenario, "text/yaml"))),
    fednet.element("pre", { tabindex: "0", text: told.scenario }),
    fednet.element("p", { text: `Versions: ${packages}.` }),
    host ? fednet.element("p", { text: `Host: ${host}${told.versions.written ? `; written ${told.versions.written}` : ""}.` }) : "");
};
