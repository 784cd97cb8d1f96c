"use strict";
// Plotly figures that follow the theme and the width of the page, and can be zoomed and moved with the keyboard.

/**
 * Add a figure.
 *
 * `draw()` returns {data, layout} for Plotly, with colours from `fednet.lineColour` and `fednet.colour`; it is called again
 * on each change of the theme. `label` describes the figure for screen readers. If the figure has the focus, the keys + and -
 * zoom the x-axis, the arrow keys move it, and 0 shows the whole axis.
 * Returns {element, redraw}; Plotly's traces are `element.data`.
 */
fednet.figure = (parent, label, draw, height = 340) => {
  const place = fednet.element("div", { class: "figure", style: `height:${height}px`, role: "img", tabindex: "0", "aria-label": label });
  parent.append(place);
  const themed = (axis) => ({
    gridcolor: fednet.colour("line"), zerolinecolor: fednet.colour("line"), linecolor: fednet.colour("line"),
    automargin: true, ...axis, title: { standoff: 8, ...(typeof axis.title === "string" ? { text: axis.title } : axis.title) },
  });
  function redraw() {
    const { data, layout = {} } = draw();
    const axes = Object.fromEntries(Object.entries({ xaxis: {}, yaxis: {}, ...layout })
      .filter(([name]) => /^[xy]axis\d*$/.test(name)).map(([name, axis]) => [name, themed(axis)]));
    const text = fednet.colour("text");
    return Plotly.react(place, data, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, height, hovermode: "closest",
      margin: { l: 56, r: 16, t: 28, b: 44 }, colorway: [0, 1, 2, 3, 4, 5, 6].map(fednet.lineColour),
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, dragmode: "zoom",
      hoverlabel: { bgcolor: fednet.colour("panel"), bordercolor: fednet.colour("line"), font: { color: text, size: 13 } },
      ...layout, font: { color: text, size: 13, family: "system-ui, sans-serif" }, ...axes,
    }, { responsive: true, displaylogo: false, displayModeBar: false });
  }
  place.addEventListener("keydown", (event) => {
    const steps = { "+": [0.25, -0.25], "=": [0.25, -0.25], "-": [-0.5, 0.5], ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2] };
    const axis = place._fullLayout?.xaxis;
    if (!axis || !(event.key in steps || event.key === "0")) return;
    event.preventDefault();
    if (event.key === "0") Plotly.relayout(place, { "xaxis.autorange": true, "yaxis.autorange": true });
    else {
      const [low, high] = axis.range.map(Number), width = high - low, [first, last] = steps[event.key];
      Plotly.relayout(place, { "xaxis.range": [low + first * width, high + last * width] });
    }
  });
  fednet.onTheme(redraw);
  redraw();
  return { element: place, redraw };
};

/** Offer text as a file for download. */
fednet.download = (name, text, type = "text/csv") => {
  const link = fednet.element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
