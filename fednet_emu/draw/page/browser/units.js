"use strict";
// Format numbers with three digits and a fitting unit, like fednet_emu/analysis/quantities.py.

const units = (() => {
  const BITS = [[1, "bit"], [1e3, "kbit"], [1e6, "Mbit"], [1e9, "Gbit"], [1e12, "Tbit"], [1e15, "Pbit"]];
  const ENERGIES = [[1e-9, "nJ"], [1e-6, "µJ"], [1e-3, "mJ"], [1, "J"], [1e3, "kJ"], [1e6, "MJ"], [1e9, "GJ"]];
  const TIMES = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]];
  const MASSES = [[1e-6, "µg"], [1e-3, "mg"], [1, "g"], [1e3, "kg"], [1e6, "t"]];
  const RATES = BITS.map(([size, symbol]) => [size, `${symbol}/s`]);
  const LENGTHS = [[1e-3, "mm"], [1, "m"], [1e3, "km"]];

  const known = (value) => typeof value === "number" && Number.isFinite(value);

  /** Return a number with three significant digits: 0.123, 12.3, 1230. */
  function digits(value) {
    if (!known(value)) return "unknown";
    if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) return value.toExponential(2);
    return Math.abs(value) >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
  }

  /** Return [size, symbol] of the largest unit in which a value is at least 1. */
  function fitting(largest, table) {
    const size = Math.abs(largest);
    if (!known(largest) || size === 0) return table.find(([each]) => each === 1);
    return table.filter(([each]) => size >= each).at(-1) ?? table[0];
  }

  function scaled(value, table) {
    if (!known(value)) return "unknown";
    const rounded = Number(value.toPrecision(3));
    const [size, symbol] = fitting(rounded, table);
    return `${digits(rounded / size)} ${symbol}`;
  }

  /** Return a duration as text: 1.5 ms, 12.3 s, -1 min 18 s, 2 h 5 min, 3 d 4 h. */
  function seconds(value) {
    if (!known(value)) return "unknown";
    const size = Math.abs(value), sign = value < 0 ? "-" : "";
    if (Number(size.toPrecision(3)) < 60) return scaled(value, TIMES);
    for (const [small, large, limit, unit, above] of [[1, 60, 3600, "s", "min"], [60, 3600, 86400, "min", "h"],
      [3600, 86400, Infinity, "h", "d"]]) {
      const count = Math.round(size / small);
      if (count * small < limit) {
        const rest = count % (large / small), whole = Math.floor(count / (large / small));
        return `${sign}${whole} ${above}${rest ? ` ${rest} ${unit}` : ""}`;
      }
    }
  }

  /** Return a count in groups of three digits with thin spaces: 12 345. */
  const count = (value) => (known(value) ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f") : "unknown");

  const share = (value) => (known(value) ? `${Number((100 * value).toPrecision(value < 0.0995 ? 2 : 3))} %` : "unknown");

  /** Return the unit {size, symbol} of an axis that ends at `largest`; values are divided by `size`. */
  function axis(largest, kind) {
    const table = { bits: BITS, energy: ENERGIES, time: TIMES, carbon: MASSES, rate: RATES, length: LENGTHS }[kind];
    let found = fitting(largest, table);
    if (kind === "time" && largest >= 300) {
      found = [[60, "min"], [3600, "h"], [86400, "d"]].filter(([each]) => largest >= 5 * each).at(-1);
    }
    return { size: found[0], symbol: found[1] };
  }

  /** Return a value of a kind in the unit of the maximum of its row, so that a row has one unit. */
  function alike(value, row, kind) {
    if (!known(value)) return "unknown";
    const largest = Math.max(0, ...row.filter(known).map(Math.abs)), { size, symbol } = axis(Number(largest.toPrecision(3)), kind);
    return `${digits(value / size)} ${symbol}`;
  }

  return {
    digits, seconds, count, share, axis, alike,
    bits: (value) => scaled(value, BITS), energy: (value) => scaled(value, ENERGIES),
    carbon: (value) => scaled(value, MASSES),
    rate: (value) => scaled(value, RATES), length: (value) => scaled(value, LENGTHS),
    decibel: (value) => (known(value) ? `${value.toFixed(1)} dB` : "unknown"),
  };
})();
