"use strict";
// The bars of a timeline: the activities of each device, from the transfers, receptions and computations of a run.

const timelineBars = (() => {
  const SEVERAL = -2;
  /** Indices of the activities; the first three are the kinds of transfers in the order of the ledger. */
  const UPLINK = 0, DOWNLINK = 1, SIDELINK = 2, COMPUTE = 3, WAITING = 4, LOST = 5;
  const COLOURS = ["uplink", "downlink", "sidelink", "compute", "waiting", "lost"];

  /**
   * Return all bars, grouped by row, in order of their start. As in `analysis/activity.py`, a transfer has a bar for each device
   * that participates, and the wait for the channel is a bar of the sender, or of the receivers if the server sends. Activities
   * that the end of the run cut off have not failed; `end` is the code of this reason.
   *
   * Arrays with one entry per bar: `activity`, `failed`, `started` and `ended` in seconds, and `source`, the index of the
   * transfer, or -1 - the index of the computation. `first[row]` to `first[row + 1]` are the bars of a row, for the device
   * `devices[row]`. `reach` is the latest end of a row's bars up to this bar, `last` the latest end of all bars.
   */
  function build({ quantum_s, devices, transfers: sent, receptions, computes: made }, total, end) {
    const failure = (code) => code > 0 && code !== end;
    const rowOf = new Int32Array(total).fill(-1);
    devices.forEach((device, row) => { rowOf[device] = row; });
    const most = 3 * sent.number.length + 2 * receptions.transfer.length + made.device.length;
    const row = new Int32Array(most), activity = new Uint8Array(most), failed = new Uint8Array(most);
    const started = new Float64Array(most), ended = new Float64Array(most), source = new Int32Array(most);
    let count = 0;
    function add(device, what, from, until, bad, origin) {
      const place = device < 0 ? -1 : rowOf[device];
      if (place < 0 || until <= from) return;
      row[count] = place; activity[count] = what; failed[count] = bad ? 1 : 0;
      started[count] = from * quantum_s; ended[count] = until * quantum_s; source[count++] = origin;
    }
    function parts(i, device, waits, bad) {
      const requested = sent.requested[i], air = requested + sent.waited[i], never = sent.took[i] < 0;
      if (waits) add(device, WAITING, requested, air, never && failure(sent.lost[i]), i);
      if (!never) add(device, sent.kind[i], air, air + sent.took[i], bad, i);
    }
    for (let i = 0; i < sent.number.length; i++) {
      if (sent.sender[i] >= 0) parts(i, sent.sender[i], true, failure(sent.lost[i]));
      if (sent.receiver[i] >= 0) parts(i, sent.receiver[i], sent.sender[i] < 0, failure(sent.lost[i]));
    }
    for (let k = 0; k < receptions.transfer.length; k++) {
      const i = receptions.transfer[k];
      if (sent.receiver[i] === SEVERAL) parts(i, receptions.receiver[k], sent.sender[i] < 0, failure(receptions.lost[k]));
    }
    for (let k = 0; k < made.device.length; k++) {
      add(made.device[k], COMPUTE, made.started[k], made.started[k] + made.took[k], failure(made.stopped[k]), -1 - k);
    }
    return ordered({ count, rows: devices.length, row, activity, failed, started, ended, source });
  }

  function ordered(loose) {
    const first = new Int32Array(loose.rows + 1);
    for (let i = 0; i < loose.count; i++) first[loose.row[i] + 1]++;
    for (let r = 0; r < loose.rows; r++) first[r + 1] += first[r];
    const order = new Uint32Array(loose.count), next = first.slice();
    for (let i = 0; i < loose.count; i++) order[next[loose.row[i]]++] = i;
    for (let r = 0; r < loose.rows; r++) {
      order.subarray(first[r], first[r + 1]).sort((a, b) => loose.started[a] - loose.started[b] || a - b);
    }
    const sorted = (values) => { const made = new values.constructor(loose.count); order.forEach((i, k) => { made[k] = values[i]; }); return made; };
    const ended = sorted(loose.ended), reach = ended.slice();
    for (let r = 0; r < loose.rows; r++) {
      for (let i = first[r] + 1; i < first[r + 1]; i++) reach[i] = Math.max(reach[i], reach[i - 1]);
    }
    return {
      count: loose.count, rows: loose.rows, last: reach.reduce((last, end) => Math.max(last, end), 1e-9), first, reach, ended, started: sorted(loose.started),
      activity: sorted(loose.activity), failed: sorted(loose.failed), source: sorted(loose.source),
    };
  }

  /** Return the first bar of a row that may end after a time. */
  function after(bars, row, time) {
    let low = bars.first[row], high = bars.first[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bars.reach[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  /** Return the bars of a row that overlap an interval, in order. */
  function within(bars, row, from, until) {
    const found = [];
    for (let i = after(bars, row, from); i < bars.first[row + 1] && bars.started[i] < until; i++) {
      if (bars.ended[i] > from) found.push(i);
    }
    return found;
  }

  return { build, after, within, COLOURS, UPLINK, DOWNLINK, SIDELINK, COMPUTE, WAITING, LOST };
})();
