"use strict";
// A description of a run in words, and its main numbers.

const runStory = (told) => {
  const section = fednet.section("story", "What happened");
  const rows = (entries) => fednet.element("div", { class: "scroll", style: "max-width:720px; max-height:none" }, fednet.element("table", {}, fednet.element("tbody", {},
    ...entries.map(([what, value]) => fednet.element("tr", {}, fednet.element("th", { scope: "row", text: what }), fednet.element("td", { text: value, style: "white-space:normal" }))))));
  section.append(...told.words.map((sentence) => fednet.element("p", { class: "story", text: sentence })), rows(told.facts));
};

/** What determined the ends of rounds: the parts of their critical paths, and the devices with the longest parts. */
const runPath = ({ path }) => {
  if (!path) return;
  const section = fednet.section("path", "What decided when rounds ended",
    "The chain of transfers, computations and waits that each round's end depended on; its parts add up to the round. What remedies could give: fednet explain.");
  const show = { took_s: units.seconds, share: (value) => `${Math.round(100 * value)} %`, energy_j: units.energy };
  const titles = { what: "Part", took_s: "Time", share: "Share", energy_j: "Energy" };
  section.append(...path.words.map((sentence) => fednet.element("p", { class: "story", text: sentence })));
  fednet.table(section, "path", Object.entries(path.kinds).map(([key, values]) => ({ key, title: titles[key], values, show: show[key] })));
  section.append(fednet.element("ul", {}, ...path.devices.map((text) => fednet.element("li", { text }))));
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
