"use strict";
// The timeline: an overview of all devices over the whole run, and below it a window that can be moved, zoomed and inspected.

/** Add the timeline of a run to a page; returns the state of the timeline, and functions that change it. */
const timeline = (told) => {
  const section = fednet.section("timeline", "Timeline",
    "One row per device. Where bars are narrower than a point, their colours mix by their shares of the time; rare ones are made visible. Of things at the same time, the transfer hides computing and waiting.");
  const { transfers: sent, computes: made, devices, quantum_s } = told.timeline;
  const bars = timelineBars.build(told.timeline, told.devices, told.reasons.indexOf("end")), total = Math.max(told.simulated_s, 1e-9);
  const GUTTER = 76, AXIS = 22, OVERVIEW = 72, ROWS_AT_FIRST = 1000;
  const view = { from: 0, until: total, first: 0, count: bars.rows };
  const orders = timelineOrders(told, devices);
  let order = orders.device.rows, pending = false;

  const legend = fednet.legend([...timelineBars.COLOURS.map((name, kind) => [name, vocabulary.activities[name]])
    .filter((_, kind) => used(kind)), ["idle", vocabulary.activities.idle]]);
  const overview = fednet.element("canvas", { style: `height:${OVERVIEW}px`, "aria-label": "Share of all devices in each state over the whole run", role: "img" });
  const height = Math.max(120, Math.min(560, bars.rows * 22 + AXIS));
  const canvas = fednet.element("canvas", {
    style: `height:${height}px; cursor: grab`, tabindex: "0", role: "application",
    "aria-label": "Timeline. Plus and minus zoom in time, arrows move, with shift plus and minus change how many rows are shown, 0 shows all.",
  });
  const status = fednet.element("p", { class: "faint", role: "status" });
  const found = fednet.element("p", { role: "status" });
  const tip = fednet.element("div", { class: "tip", hidden: true });
  const number = fednet.element("input", { type: "number", min: "0", style: "width: 9em", "aria-label": "Number of a transfer" });

  function used(kind) {
    if (kind === timelineBars.LOST) return bars.failed.includes(1);
    return bars.activity.includes(kind);
  }

  // ---- painting -----------------------------------------------------------------------------------------------------

  function fitted(target) {
    const ratio = Math.min(devicePixelRatio || 1, 2), width = target.clientWidth, tall = target.clientHeight;
    if (target.width !== Math.round(width * ratio)) target.width = Math.round(width * ratio);
    if (target.height !== Math.round(tall * ratio)) target.height = Math.round(tall * ratio);
    const pen = target.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, tall);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return { pen, width, tall, ratio };
  }

  function paint() {
    pending = false;
    const { pen, width, tall, ratio } = fitted(canvas);
    const columns = Math.max(Math.round((width - GUTTER) * ratio), 1), lines = Math.max(Math.round((tall - AXIS) * ratio), 1);
    if (bars.rows) pen.putImageData(timelinePaint.picture(bars, order, view, columns, lines), Math.round(GUTTER * ratio), 0);
    pen.fillStyle = fednet.colour("faint");
    labels(pen, tall - AXIS);
    instants(pen, width, tall);
    paintOverview();
    const shown = view.count === bars.rows ? `all ${units.count(bars.rows)} rows` : `${units.count(view.count)} of ${units.count(bars.rows)} rows`;
    status.textContent = `${clock(view.from)} to ${clock(view.until)} (${units.seconds(view.until - view.from)}), ${shown}.`;
  }

  const clock = (seconds) => `${Number(seconds.toFixed(Math.max(0, Math.min(9, 3 - Math.floor(Math.log10(view.until - view.from))))))} s`;

  function labels(pen, tall) {
    const each = tall / view.count, every = Math.max(1, Math.ceil(19 / each));
    pen.textAlign = "right";
    for (let k = 0; k < view.count; k += every) pen.fillText(`${devices[order[view.first + k]]}`, GUTTER - 8, Math.max((k + 0.5) * each, 7));
    pen.save();
    pen.translate(9, tall / 2); pen.rotate(-Math.PI / 2); pen.textAlign = "center";
    pen.fillText("device", 0, 0);
    pen.restore();
  }

  function instants(pen, width, tall) {
    const scale = (width - GUTTER) / (view.until - view.from);
    const { found, step } = timelinePaint.ticks(view.from, view.until, Math.max(2, (width - GUTTER) / 130));
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    pen.textAlign = "center";
    for (const instant of found) {
      const x = GUTTER + (instant - view.from) * scale;
      pen.fillRect(x, tall - AXIS, 1, 5);
      pen.fillText(`${instant.toFixed(Math.min(digits, 9))} s`, Math.min(Math.max(x, GUTTER + 20), width - 30), tall - AXIS + 14);
    }
  }

  let known = { columns: 0 };
  function paintOverview() {
    const { pen, width, tall } = fitted(overview), columns = Math.max(Math.round(width - GUTTER), 1);
    if (known.columns !== columns) known = { columns, sums: timelinePaint.shares(bars, total, columns) };
    pen.fillStyle = fednet.colour("idle");
    pen.fillRect(GUTTER, 0, columns, tall);
    const colours = timelineBars.COLOURS.map(fednet.colour);
    for (let column = 0; column < columns; column++) {
      let sum = 0;
      for (let kind = 0; kind < timelinePaint.KINDS; kind++) sum += known.sums[column * timelinePaint.KINDS + kind];
      let y = tall;
      for (const kind of timelinePaint.ORDER) {
        const share = (known.sums[column * timelinePaint.KINDS + kind] / Math.max(sum, 1)) * tall;
        if (share <= 0) continue;
        y -= share;
        pen.fillStyle = colours[kind];
        pen.fillRect(GUTTER + column, y, 1, share);
      }
    }
    pen.fillStyle = fednet.colour("faint");
    pen.textAlign = "right";
    pen.fillText("all devices", GUTTER - 4, tall / 2);
    pen.strokeStyle = fednet.colour("text");
    pen.lineWidth = 2;
    const left = GUTTER + (view.from / total) * columns, wide = ((view.until - view.from) / total) * columns;
    pen.strokeRect(Math.min(left + 1, width - 4), 1, Math.max(wide - 2, 2), tall - 2);
  }

  function refresh() {
    if (!pending) { pending = true; requestAnimationFrame(paint); }
  }

  // ---- moving and zooming -------------------------------------------------------------------------------------------

  function show(from, until, first = view.first, count = view.count) {
    const width = Math.min(Math.max(until - from, 2e-9), total);
    view.from = Math.min(Math.max(from, 0), total - width);
    view.until = view.from + width;
    view.count = Math.min(Math.max(Math.round(count), Math.min(1, bars.rows)), bars.rows);
    view.first = Math.min(Math.max(Math.round(first), 0), bars.rows - view.count);
    refresh();
  }
  function zoom(factor, centre = (view.from + view.until) / 2) {
    show(centre - (centre - view.from) * factor, centre + (view.until - centre) * factor);
  }
  function zoomRows(factor, centre = view.first + view.count / 2) {
    const count = factor < 1 ? Math.floor(view.count * factor) : Math.max(view.count * factor, view.count + 1);
    show(view.from, view.until, centre - (centre - view.first) * (count / view.count), count);
  }
  const everything = () => show(0, total, 0, bars.rows);

  /** Show and describe a single transfer; returns false if the transfer is not on the page. */
  function goTo(wanted) {
    const place = sent.number.indexOf(wanted);
    const row = [sent.sender[place], sent.receiver[place]].map((device) => order.indexOf(devices.indexOf(device))).find((found) => found >= 0)
      ?? order.findIndex((each) => timelineBars.within(bars, each, 0, total).some((bar) => bars.source[bar] === place));
    found.textContent = place < 0 ? `There is no transfer ${wanted} here.` : `${describeTransfer(place).replaceAll("\n", "; ")}.`;
    if (place < 0) return false;
    const never = sent.took[place] < 0, from = (sent.requested[place] + (never ? 0 : sent.waited[place])) * quantum_s;
    const took = (never ? sent.waited[place] : sent.took[place]) * quantum_s;
    const count = Math.min(12, bars.rows);
    show(from - 1.5 * took, from + 2.5 * took, row - count / 2, count);
    return true;
  }

  // ---- pointing -----------------------------------------------------------------------------------------------------

  const name = (device) => (device === -1 ? "the server" : device === -2 ? "several" : `device ${device}`);
  function snr(place, device) {
    const scene = told.scene;
    if (!scene.times_s || sent.kind[place] === timelineBars.SIDELINK || device < 0) return null;
    const time = sent.requested[place] * quantum_s, last = scene.times_s.length - 1;
    const step = last ? Math.round((time / scene.times_s[last]) * last) : 0;
    return scene.snr_db[step * told.devices + device];
  }
  function describeTransfer(place, device = Math.max(sent.sender[place], sent.receiver[place])) {
    const took = sent.took[place] * quantum_s, bit = sent.size_bit[place] - sent.unsent_bit[place];
    const start = (sent.requested[place] + sent.waited[place]) * quantum_s, level = sent.kind[place] === timelineBars.UPLINK ? snr(place, device) : null;
    const receivers = sent.receiver[place] === -2 ? `${sent.receivers[place]} devices` : name(sent.receiver[place]);
    return [
      `Transfer ${sent.number[place]}: ${told.kinds[sent.kind[place]]} of ${name(sent.sender[place])} to ${receivers}`,
      took < 0 ? `never on the air, requested at ${start} s` : `on the air from ${Number(start.toFixed(9))} s for ${units.seconds(took)}`,
      `waited ${units.seconds(sent.waited[place] * quantum_s)}, ${units.bits(sent.size_bit[place])}`,
      took > 0 ? `${units.rate(bit / took)} on average` + (level === null ? "" : `, mean SNR ${units.decibel(level)}`) : null,
      sent.lost[place] ? `lost: ${told.reasons[sent.lost[place]]}` : "delivered",
      sent.energy_j ? `energy ${units.energy(sent.energy_j[place])}` : null,
    ].filter(Boolean).join("\n");
  }
  function describe(bar, device) {
    const source = bars.source[bar];
    if (source >= 0) return (bars.activity[bar] === timelineBars.WAITING ? "Waiting for the air\n" : "") + describeTransfer(source, device);
    const stopped = told.reasons[made.stopped[-1 - source]];
    return `Computation of device ${device}\nfrom ${Number(bars.started[bar].toFixed(9))} s for ` +
      units.seconds(bars.ended[bar] - bars.started[bar]) + (stopped ? `\nstopped: ${stopped}` : "");
  }
  /** Return the row and the time at a point of the canvas, and the bars at this point. */
  function at(x, y) {
    const width = canvas.clientWidth - GUTTER, tall = canvas.clientHeight - AXIS;
    if (x < GUTTER || y > tall || !bars.rows) return null;
    const place = Math.min(view.first + Math.floor((y / tall) * view.count), bars.rows - 1), row = order[place];
    const time = view.from + ((x - GUTTER) / width) * (view.until - view.from), near = (1.5 / width) * (view.until - view.from);
    return { device: devices[row], time, found: timelineBars.within(bars, row, time - near, time + near) };
  }
  function point(event) {
    const box = canvas.getBoundingClientRect(), here = at(event.clientX - box.left, event.clientY - box.top);
    tip.hidden = !here;
    if (!here) return;
    const shown = here.found.slice(0, 3).map((bar) => describe(bar, here.device));
    if (here.found.length > 3) shown.push(`and ${units.count(here.found.length - 3)} more: zoom in`);
    tip.textContent = [`Device ${here.device} at ${clock(here.time)}`, ...(shown.length ? shown : ["idle"])].join("\n\n");
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 370)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  }

  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, y: event.clientY, ...view };
    canvas.setPointerCapture(event.pointerId);
    canvas.style.cursor = "grabbing";
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return point(event);
    tip.hidden = true;
    const step = ((held.x - event.clientX) / (canvas.clientWidth - GUTTER)) * (held.until - held.from);
    show(held.from + step, held.until + step, held.first + ((held.y - event.clientY) / (canvas.clientHeight - AXIS)) * held.count);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; canvas.style.cursor = "grab"; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect(), here = at(event.clientX - box.left, event.clientY - box.top), factor = event.deltaY > 0 ? 1.25 : 0.8;
    if (event.shiftKey) zoomRows(factor); else zoom(factor, here?.time);
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, at(event.offsetX, event.offsetY)?.time));
  canvas.addEventListener("keydown", (event) => {
    const width = view.until - view.from, rows = Math.max(1, Math.round(view.count / 4));
    const actions = {
      "+": () => (event.shiftKey && event.code !== "Equal" ? zoomRows(0.5) : zoom(0.5)), "-": () => zoom(2), "=": () => zoom(0.5), _: () => zoomRows(2), "*": () => zoomRows(0.5),
      PageUp: () => zoomRows(0.5), PageDown: () => zoomRows(2),
      ArrowLeft: () => show(view.from - width / 5, view.until - width / 5), ArrowRight: () => show(view.from + width / 5, view.until + width / 5),
      ArrowUp: () => show(view.from, view.until, view.first - rows), ArrowDown: () => show(view.from, view.until, view.first + rows),
      0: everything, Home: everything,
    };
    if (!(event.key in actions) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  });
  overview.addEventListener("pointerdown", (event) => {
    const centre = ((event.offsetX - GUTTER) / (overview.clientWidth - GUTTER)) * total, half = (view.until - view.from) / 2;
    show(centre - half, centre + half);
  });

  const sorts = fednet.select("Rows by", Object.entries(orders).map(([key, each]) => [key, each.text]), (key) => { order = orders[key].rows; refresh(); });
  section.append(...told.timeline.notes.map((text) => fednet.element("p", { text })),
    fednet.controls(sorts, fednet.button("Zoom in", () => zoom(0.5)), fednet.button("Zoom out", () => zoom(2)),
      fednet.button("Fewer rows", () => zoomRows(0.5)), fednet.button("More rows", () => zoomRows(2)), fednet.button("All", everything),
      fednet.element("label", {}, fednet.element("span", { text: "Transfer" }), number), fednet.button("Go to it", () => goTo(Number(number.value)))),
    legend, overview, canvas, status, found,
    fednet.element("p", { class: "faint", text: "Drag to move; click into it, then turn the wheel to zoom (with shift: rows). Keys: + and - zoom, arrows move, page up and down change the number of rows, 0 shows all." }), tip);
  if (bars.rows > ROWS_AT_FIRST) show(0, total, 0, ROWS_AT_FIRST);
  new ResizeObserver(refresh).observe(canvas);
  fednet.onTheme(refresh);
  paint();
  return { bars, view, at, describe, goTo, show, zoom, canvas, order: () => Array.from(order, (row) => devices[row]) };
};

/** Sort orders of rows: the text of each order, and the rows of the devices in this order. */
function timelineOrders(told, devices) {
  const rows = Array.from(devices, (_, row) => row), numbers = told.device;
  const by = (values, sign) => rows.toSorted((a, b) => sign * (values[devices[a]] - values[devices[b]]) || a - b);
  const orders = { device: { text: "device number", rows } };
  const offer = (key, text, values, sign) => { if (values) orders[key] = { text, rows: by(values, sign) }; };
  offer("speed", "computing speed, fastest first", numbers.speed_flop_per_s, -1);
  offer("distance", "distance to the station, nearest first", numbers.distance_m, 1);
  offer("cell", "cell", numbers.cell, 1);
  offer("lost", "time lost, most first", numbers.lost_s, -1);
  offer("waiting", "waiting, longest first", told.split.waiting, -1);
  offer("computing", "computing, longest first", told.split.compute, -1);
  offer("idle", "idle, longest first", told.split.idle, -1);
  return orders;
}
