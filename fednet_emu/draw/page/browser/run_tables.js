"use strict";
// All tables of a run, which can be sorted, filtered and saved.

const runTables = (told) => {
  const section = fednet.section("tables", "Tables", "Sort by a column, filter, save as CSV. Times are simulated seconds; the server is device -1, several receivers are -2.");
  const unitOf = (name) => [[/flop_per_s$/, (value) => `${units.digits(value / 1e9)} GFLOP/s`], [/_s$/, units.seconds], [/_bit$/, units.bits], [/_j$/, units.energy], [/_bps$/, units.rate], [/_m$/, units.length], [/_db$/, units.decibel]].find(([ending]) => ending.test(name))?.[1];
  const plain = (value) => (typeof value === "number" && !Number.isInteger(value) ? units.digits(value) : String(value));
  const TIMES = /^(requested|started|ended|simulated|arrived|sent|got)_s$/;
  const column = (key, values) => ({ key, title: key, values, show: TIMES.test(key) ? (value) => `${Number(value.toFixed(6))} s` : unitOf(key) ?? plain });
  const columns = (values) => Object.entries(values).map(([key, each]) => column(key, each));
  const { transfers: sent, computes: made, quantum_s } = told.timeline;
  const scaled = (values) => Float64Array.from(values, (value) => Number((value * quantum_s).toFixed(9)));
  const words = (codes, of) => Array.from(codes, (code) => of[code]);

  function transfers() {
    const started = Float64Array.from(sent.requested, (value, i) => (sent.took[i] < 0 ? NaN : Number(((value + sent.waited[i]) * quantum_s).toFixed(9))));
    const ended = Float64Array.from(sent.requested, (value, i) => Number(((value + sent.waited[i] + Math.max(sent.took[i], 0)) * quantum_s).toFixed(9)));
    return {
      transfer: sent.number, kind: words(sent.kind, told.kinds), sender: sent.sender, receiver: sent.receiver, receivers: sent.receivers, size_bit: sent.size_bit,
      requested_s: scaled(sent.requested), started_s: started, ended_s: ended,
      loss_reason: words(sent.lost, told.reasons), cell: sent.cell, ...(sent.energy_j ? { energy_j: sent.energy_j } : {}),
    };
  }
  function computes() {
    const started = scaled(made.started);
    return { device: made.device, started_s: started, ended_s: Float64Array.from(made.took, (value, i) => Number(((made.started[i] + value) * quantum_s).toFixed(9))), stopped: words(made.stopped, told.reasons) };
  }
  function devices() {
    const named = (prefix, parts, unit) => Object.fromEntries(Object.entries(parts).filter(([, values]) => values.length).map(([key, values]) => [`${prefix}${key}${unit}`, values]));
    return { device: Array.from({ length: told.devices }, (_, device) => device), ...told.device, ...named("", told.split, "_s"), ...named("energy_", told.energy, "_j") };
  }
  const made_here = { devices, transfers, computes };
  const notes = { transfers: told.timeline.notes.join(" "), computes: told.timeline.notes.join(" ") };
  const place = fednet.element("div");
  const state = {};
  function show(name) {
    const table = told.tables[name], values = made_here[name]?.() ?? table.values, length = Object.values(values)[0].length;
    const left = table && table.rows > length ? `The first ${units.count(length)} of ${units.count(table.rows)} rows are here; the run folder has all.` : notes[name] ?? "";
    place.replaceChildren(left ? fednet.element("p", { text: left }) : "");
    state.name = name;
    state.table = fednet.table(place, name, columns(values));
  }
  const names = [...Object.keys(made_here), ...Object.keys(told.tables)];
  section.append(fednet.controls(fednet.select("Table", names.map((name) => [name, name.replaceAll("_", " ")]), show)), place);
  show("devices");
  return state;
};
