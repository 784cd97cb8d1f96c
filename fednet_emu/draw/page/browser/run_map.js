"use strict";
// The map: devices and stations in metres, with the transfers on their links, over time.

const MOST_ON_MAP = 3000, MOST_LINES = 1500, STEPS = 121;

const runMap = (told) => {
  const { scene } = told, section = fednet.section("map", "Map");
  if (!scene.times_s) {
    section.append(fednet.element("p", { text: `Where devices were is not known: ${scene.missing}` }));
    return null;
  }
  const count = told.devices, moves = scene.times_s.length > 1, every = Math.ceil(count / MOST_ON_MAP);
  const instants = moves ? scene.times_s.length : STEPS, period = told.simulated_s / (instants - 1);
  const { transfers: sent, receptions, quantum_s } = told.timeline;
  const shown = Array.from({ length: Math.ceil(count / every) }, (_, place) => place * every);
  const state = { step: 0, by: "uplink_bps", links: false, ground: true, sending: told.losses.some((row) => row.kind === "sidelink"), playing: 0, drawn: 0, under_way: 0 };
  const place = (device) => (moves ? state.step * count : 0) + device;
  const MEASURES = {
    uplink_bps: ["Uplink rate alone in the band", units.rate, "log"], downlink_bps: ["Downlink rate alone in the band", units.rate, "log"],
    snr_db: ["Mean SNR of the uplink", units.decibel, "linear"], cell: ["Cell", String, "cell"],
    speed_flop_per_s: ["Computing speed", (value) => `${units.digits(value / 1e9)} GFLOP/s`, "log"], lost_s: ["Time lost", units.seconds, "linear"],
  };
  const moving = (name) => name in scene;
  const value = (name, device) => (moving(name) ? scene[name][place(device)] : told.device[name][device]);
  const offered = Object.entries(MEASURES).filter(([name]) => moving(name) || told.device[name]);
  const span = (values) => { let low = Infinity, high = -Infinity; for (const each of values) if (Number.isFinite(each)) { low = Math.min(low, each); high = Math.max(high, each); } return [low, high]; };
  const reach = (axis, place) => { const [low, high] = span([...span(scene[axis].filter((_, i) => scene.there[i])).map((cm) => cm / 100).filter(Number.isFinite), ...scene.stations.map((xy) => xy[place])]); return [low, Math.max(high, low + 1)]; };
  const bounds = [reach("x_cm", 0), reach("y_cm", 1)].map(([low, high]) => [low - 0.06 * (high - low), high + 0.06 * (high - low)]);
  const there = (device) => Boolean(scene.there[place(device)]);
  const at = (device) => (there(device) ? [scene.x_cm[place(device)] / 100, scene.y_cm[place(device)] / 100] : [null, null]);

  function colours() {
    const [title, show, scale] = MEASURES[state.by], values = shown.map((device) => value(state.by, device));
    equal.textContent = "";
    if (scale === "cell") return { marker: { color: values.map((cell) => fednet.lineColour(cell)) } };
    const all = span(moving(state.by) ? scene[state.by].filter((_, i) => scene.there[i]) : told.device[state.by]);
    equal.textContent = all[0] === all[1] ? `All the same: ${show(all[0])}.` : "";
    if (!(all[1] > all[0])) return { marker: { color: fednet.colour("accent") } };
    const log = scale === "log" && all[1] > 0;
    const low = log ? Math.max(all[0], all[1] / 1e6) : all[0], of = (number) => (log ? Math.log10(Math.max(number, low)) : number);
    const marks = Array.from({ length: 5 }, (_, k) => of(low) + (k / 4) * (of(all[1]) - of(low)));
    return { marker: {
      color: values.map(of), cmin: of(low), cmax: of(all[1]), colorscale: "Viridis", reversescale: false,
      colorbar: { title: { text: title, side: "right" }, thickness: 14, tickvals: marks, ticktext: marks.map((mark) => show(log ? 10 ** mark : mark)), outlinewidth: 0 },
    } };
  }

  function links() {
    const x = [], y = [];
    if (state.links) for (const device of shown.filter(there)) { const [a, b] = at(device), station = scene.stations[value("cell", device)]; x.push(a, station[0], null); y.push(b, station[1], null); }
    return { x, y, mode: "lines", line: { color: fednet.colour("faint"), width: 0.7 }, hoverinfo: "skip", showlegend: false };
  }

  /** Return transfers on the air within half a step of this time, by kind, with one line for each receiver. */
  function underWay() {
    const from = ((state.step - 0.5) * period) / quantum_s, until = ((state.step + 0.5) * period) / quantum_s;
    const lines = told.kinds.map(() => ({ x: [], y: [] })), now = new Set();
    state.under_way = state.drawn = 0;
    const end = (device, cell) => (device < 0 ? scene.stations[cell] ?? scene.stations[0] : at(device));
    function line(i, sender, receiver) {
      state.under_way++;
      if (state.drawn >= MOST_LINES) return;
      state.drawn++;
      const kind = sent.kind[i], server = Math.max(sender, receiver), cell = kind === timelineBars.SIDELINK ? 0 : value("cell", server);
      const [a, b] = [end(sender, cell), end(receiver, cell)];
      lines[kind].x.push(a[0], b[0], null); lines[kind].y.push(a[1], b[1], null);
    }
    if (state.sending) {
      for (let i = 0; i < sent.number.length; i++) {
        const start = sent.requested[i] + sent.waited[i];
        if (sent.took[i] < 0 || start >= until || start + sent.took[i] <= from) continue;
        if (sent.receiver[i] === -2) now.add(i); else line(i, sent.sender[i], sent.receiver[i]);
      }
      if (now.size) for (let k = 0; k < receptions.transfer.length; k++) if (now.has(receptions.transfer[k])) line(receptions.transfer[k], sent.sender[receptions.transfer[k]], receptions.receiver[k]);
    }
    status.textContent = !state.sending ? "" : `${units.count(state.under_way)} transfers under way` + (state.drawn < state.under_way ? `, ${units.count(state.drawn)} of them drawn.` : ".");
    return lines.map(({ x, y }, kind) => ({ x, y, mode: "lines", name: told.kinds[kind], line: { color: fednet.colour(told.kinds[kind]), width: 1.5 }, hoverinfo: "skip", showlegend: x.length > 0 }));
  }

  const status = fednet.element("span", { class: "faint", role: "status" }), equal = fednet.element("span", { class: "faint" }), absent = fednet.element("span", { class: "faint" });
  const figure = fednet.figure(section, "Map of devices and stations", () => {
    const places = shown.map(at), [title, show] = MEASURES[state.by];
    const text = shown.map((device) => `device ${device}<br>${title}: ${show(value(state.by, device))}<br>uplink ${units.rate(value("uplink_bps", device))}, downlink ${units.rate(value("downlink_bps", device))}<br>mean SNR ${units.decibel(value("snr_db", device))}, cell ${value("cell", device)}`);
    const look = colours(), ground = told.ground && state.ground ? [{ type: "heatmap", x: told.ground.x_m, y: told.ground.y_m, z: told.ground.gain_db, name: "gain", colorscale: "Greys", reversescale: true,
      showscale: false, hovertemplate: "%{x} m, %{y} m: gain %{z:.1f} dB<extra></extra>" }] : [];
    const away = shown.length - shown.filter(there).length;
    absent.textContent = away ? `${units.count(away)} of ${units.count(shown.length)} devices are away.` : "";
    return {
      data: [...ground, links(), ...underWay(),
        { x: places.map(([x]) => x), y: places.map(([, y]) => y), text, hovertemplate: "%{text}<extra></extra>", mode: "markers", name: "devices", ...look,
          marker: { size: count > 300 ? 6 : 9, line: { width: 0.5, color: fednet.colour("back") }, ...look.marker } },
        { x: scene.stations.map(([x]) => x), y: scene.stations.map(([, y]) => y), text: scene.stations.map((_, cell) => `station of cell ${cell}`), hovertemplate: "%{text}<extra></extra>",
          mode: "markers", name: "stations", marker: { symbol: "triangle-up", size: 15, color: fednet.colour("text"), line: { width: 1.5, color: fednet.colour("back") } } }],
      layout: { showlegend: true, xaxis: { title: "East in m", range: bounds[0], constrain: "domain" }, yaxis: { title: "North in m", range: bounds[1], scaleanchor: "x", constrain: "domain" } },
    };
  }, 560);
  figure.element.style.maxWidth = "900px";
  const time = fednet.slider("Time", [0, Math.max(instants - 1, 1), 1], (step) => { state.step = step; figure.redraw(); }, (step) => units.seconds(step * period));
  function move(step) { time.box.value = step; time.box.dispatchEvent(new Event("input")); }
  const play = fednet.button("Play", () => {
    clearInterval(state.playing);
    play.textContent = state.playing ? "Play" : "Stop";
    state.playing = state.playing ? 0 : setInterval(() => move((state.step + 1) % instants), 200);
  });
  const notes = [moves ? null : "Nobody moves.", every > 1 ? `One of ${every} devices is drawn.` : null].filter(Boolean).join(" ");
  section.insertBefore(fednet.controls(
    fednet.select("Colour by", offered.map(([name, [title]]) => [name, title]), (name) => { state.by = name; figure.redraw(); }),
    fednet.checkbox("links to stations", (on) => { state.links = on; figure.redraw(); }), fednet.checkbox("transfers under way", (on) => { state.sending = on; figure.redraw(); }, state.sending),
    told.ground ? fednet.checkbox("gain of the best station", (on) => { state.ground = on; figure.redraw(); }, true) : null, time, play, status, absent, equal,
    notes ? fednet.element("span", { class: "faint", text: notes }) : null), figure.element);
  return { ...figure, state };
};
