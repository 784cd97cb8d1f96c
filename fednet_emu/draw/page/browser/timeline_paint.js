"use strict";
// Paint bars: each pixel mixes the colours of its activities, by their shares of the pixel's time and devices.

const timelinePaint = (() => {
  const KINDS = timelineBars.COLOURS.length;
  const ORDER = [timelineBars.LOST, timelineBars.UPLINK, timelineBars.DOWNLINK, timelineBars.SIDELINK, timelineBars.COMPUTE, timelineBars.WAITING];
  const SPARSE = 0.5, VISIBLE = 0.35;  // with fewer bars per pixel than SPARSE, each activity has at least the share VISIBLE

  /** Add the time shares of a row's activities to `sums` [columns x activities]. */
  function accumulate(bars, row, from, until, columns, sums) {
    const scale = columns / (until - from);
    const { started, ended, activity, failed } = bars, last = bars.first[row + 1];
    for (let i = timelineBars.after(bars, row, from); i < last && started[i] < until; i++) {
      const begin = Math.max((started[i] - from) * scale, 0), end = Math.min((ended[i] - from) * scale, columns);
      if (end <= begin) continue;
      const kind = failed[i] ? timelineBars.LOST : activity[i];
      let column = Math.floor(begin);
      const final = Math.min(Math.floor(end), columns - 1);
      if (column === final) { sums[column * KINDS + kind] += end - begin; continue; }
      sums[column * KINDS + kind] += column + 1 - begin;
      for (column++; column < final; column++) sums[column * KINDS + kind] += 1;
      sums[final * KINDS + kind] += end - final;
    }
  }

  /**
   * Add the activities of one row to the sums of its line. Of simultaneous activities, the first in ORDER hides the others
   * as far as the shares of a pixel allow, so that waiting during a transfer is hidden.
   */
  function addRow(bars, row, from, until, columns, own, sums) {
    own.fill(0);
    accumulate(bars, row, from, until, columns, own);
    for (let base = 0; base < own.length; base += KINDS) {
      let left = 1;
      for (const kind of ORDER) {
        if (own[base + kind] === 0) continue;
        const share = Math.min(own[base + kind], left);
        sums[base + kind] += share;
        left -= share;
      }
    }
  }

  /** Return the red, green and blue values of a colour #rrggbb. */
  const parts = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));

  function palette() {
    return { kinds: timelineBars.COLOURS.map((name) => parts(fednet.colour(name))), idle: parts(fednet.colour("idle")) };
  }

  /**
   * Write the colours of one line of pixels from the sums of `rows` rows to `line` [columns x 4]. Every activity in a pixel
   * except waiting has at least the share `floor` of the pixel's colour.
   */
  function mix(sums, rows, columns, colours, line, floor) {
    for (let column = 0; column < columns; column++) {
      let red = 0, green = 0, blue = 0, whole = 0;
      for (let kind = 0; kind < KINDS; kind++) {
        let share = sums[column * KINDS + kind] / rows;
        if (share === 0) continue;
        if (share < floor && kind !== timelineBars.WAITING) share = floor;
        const [r, g, b] = colours.kinds[kind];
        red += share * r; green += share * g; blue += share * b; whole += share;
      }
      const rest = Math.max(1 - whole, 0), over = Math.max(whole, 1), [r, g, b] = colours.idle;
      line[4 * column] = red / over + rest * r;
      line[4 * column + 1] = green / over + rest * g;
      line[4 * column + 2] = blue / over + rest * b;
      line[4 * column + 3] = 255;
    }
  }

  /** Return an image of the rows `order[first]` to `order[first + count - 1]` between two times. */
  function picture(bars, order, { from, until, first, count }, columns, lines) {
    const image = new ImageData(columns, lines), colours = palette();
    const sums = new Float32Array(columns * KINDS), own = new Float32Array(columns * KINDS), line = new Uint8ClampedArray(columns * 4);
    const places = Math.min(lines, count), here = (bars.count / bars.rows) * ((until - from) / bars.last);
    const floor = here / columns < SPARSE && count <= 2 * lines ? VISIBLE : 0;
    for (let place = 0; place < places; place++) {
      const begin = first + Math.floor((place * count) / places), end = first + Math.floor(((place + 1) * count) / places);
      sums.fill(0);
      for (let k = begin; k < end; k++) addRow(bars, order[k], from, until, columns, own, sums);
      mix(sums, end - begin, columns, colours, line, floor);
      const top = Math.floor((place * lines) / places), bottom = Math.floor(((place + 1) * lines) / places);
      const gap = bottom - top >= 4 ? 1 : 0;
      for (let y = top; y < bottom - gap; y++) image.data.set(line, y * columns * 4);
    }
    return image;
  }

  /** Return the share of devices in each activity over the whole run [columns x activities]. */
  function shares(bars, until, columns) {
    const sums = new Float32Array(columns * KINDS), own = new Float32Array(columns * KINDS);
    for (let row = 0; row < bars.rows; row++) addRow(bars, row, 0, until, columns, own, sums);
    return sums.map((sum) => sum / Math.max(bars.rows, 1));
  }

  /** Return about `count` round times inside an interval, and the number of decimals that they need. */
  function ticks(from, until, count) {
    const rough = (until - from) / count, ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * ten).find((each) => each >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(from / step); k * step <= until + 1e-9 * step; k++) found.push(k * step);
    return { found, step };
  }

  return { picture, shares, ticks, KINDS, ORDER };
})();
