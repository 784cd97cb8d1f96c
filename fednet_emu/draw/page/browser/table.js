"use strict";
// Tables that can be sorted by each column, filtered by a text, and saved as CSV.

/**
 * Add a table.
 *
 * `columns` is a list of {key, title, values, show}: `values` an array (typed or not) with one entry per row, null or NaN if
 * unknown; `show(value, row)` its text, by default the value. The CSV has the column titles `key` and the unformatted values.
 * The page shows the first rows, and a button shows more; sorting, filter and CSV include all rows.
 * Returns {element, rows()}: the numbers of the rows that pass the filter, in order.
 */
fednet.table = (parent, name, columns, { sort = null, descending = false, page = 100 } = {}) => {
  const length = columns[0]?.values.length ?? 0;
  const state = { sort, descending, filter: "", shown: page, rows: [] };
  const unknown = (value) => value === null || value === undefined || Number.isNaN(value);
  const number = (column) => !Array.from({ length: Math.min(length, 50) }, (_, i) => column.values[i]).some((value) => typeof value === "string" || typeof value === "boolean");
  const numeric = new Map(columns.map((column) => [column, number(column)]));
  const text = (column, row) => {
    const value = column.values[row];
    return unknown(value) ? "" : column.show ? column.show(value, row) : String(value);
  };

  function order() {
    const wanted = state.filter.toLowerCase();
    const rows = [];
    for (let row = 0; row < length; row++) {
      if (!wanted || columns.some((column) => text(column, row).toLowerCase().includes(wanted))) rows.push(row);
    }
    const column = columns.find((each) => each.key === state.sort);
    if (column) {
      const sign = state.descending ? -1 : 1, values = column.values;
      rows.sort((a, b) => {
        const [x, y] = [values[a], values[b]];
        if (unknown(x) || unknown(y)) return unknown(x) - unknown(y) || a - b;
        return sign * (numeric.get(column) ? x - y : String(x).localeCompare(String(y))) || a - b;
      });
    }
    state.rows = rows;
  }

  const body = fednet.element("tbody"), counted = fednet.element("span", { class: "faint", role: "status" });
  const heads = columns.map((column) => fednet.element("th", { scope: "col", class: numeric.get(column) ? "number" : "" },
    fednet.button(column.title, () => {
      state.descending = state.sort === column.key ? !state.descending : numeric.get(column);
      state.sort = column.key;
      refresh();
    })));
  const more = fednet.button("Show more", () => { state.shown += 10 * page; draw(); });

  function draw() {
    body.replaceChildren(...state.rows.slice(0, state.shown).map((row) => fednet.element("tr", {},
      ...columns.map((column) => fednet.element("td", { class: numeric.get(column) ? "number" : "", text: text(column, row) })))));
    heads.forEach((head, place) => {
      const sorted = columns[place].key === state.sort;
      head.setAttribute("aria-sort", sorted ? (state.descending ? "descending" : "ascending") : "none");
      head.firstChild.textContent = columns[place].title + (sorted ? (state.descending ? " ↓" : " ↑") : "");
    });
    const shown = Math.min(state.shown, state.rows.length);
    counted.textContent = `${units.count(shown)} of ${units.count(state.rows.length)} rows` +
      (state.rows.length < length ? ` (${units.count(length)} without the filter)` : "");
    more.hidden = shown === state.rows.length;
  }
  function refresh() { order(); draw(); }

  const quoted = (value) => (unknown(value) ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const csv = () => [columns.map((column) => column.key).join(","),
    ...state.rows.map((row) => columns.map((column) => quoted(column.values[row])).join(","))].join("\n") + "\n";
  let typing = 0;
  const filter = fednet.element("input", {
    type: "search", placeholder: "text in any column",
    input: () => { clearTimeout(typing); typing = setTimeout(() => { state.filter = filter.value; state.shown = page; refresh(); }, 150); },
  });
  const scroller = fednet.element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    fednet.element("table", {}, fednet.element("thead", {}, fednet.element("tr", {}, ...heads)), body));
  const wide = fednet.element("span", { class: "faint" });
  new ResizeObserver(() => {
    wide.textContent = scroller.scrollWidth > scroller.clientWidth ? `${columns.length} columns, scroll to the right for the last` : "";
  }).observe(scroller);
  const made = fednet.element("div", { class: "table" },
    fednet.controls(fednet.element("label", {}, fednet.element("span", { text: "Filter" }), filter),
      fednet.button("Save as CSV", () => fednet.download(`${name}.csv`, csv())), counted, wide),
    scroller, more);
  parent.append(made);
  refresh();
  return { element: made, rows: () => state.rows, csv };
};
