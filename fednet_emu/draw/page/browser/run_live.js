"use strict";
// A live run compared with its prediction, by transfer and by round; other runs have no such section.

const runLive = (told) => {
  if (!told.live) return null;
  const { transfers: sent, rounds, doubtful } = told.live, errors = Array.from(sent.error).filter((error) => !Number.isNaN(error));
  const middle = errors.toSorted((a, b) => Math.abs(a) - Math.abs(b))[Math.floor(errors.length / 2)];
  const share = (value) => `${value < 0 ? "−" : "+"}${units.share(Math.abs(value))}`;
  const section = fednet.section("live", "Predicted beside measured", `${doubtful ? `Doubtful: ${doubtful}. ` : ""}${errors.length ?
    `Of ${units.count(sent.error.length)} transfers ${units.count(errors.length)} can be compared; half of them differ by less than ${units.share(Math.abs(middle))}.` : "No transfer can be compared."} ` +
    "The same code computes both rates, so that agreement says nothing about the radio's formulas.");
  const figure = errors.length ? fednet.figure(section, "Transfers as predicted and as measured", () => {
    const most = Math.max(...sent.took_s, ...Array.from(sent.predicted_s).filter((value) => !Number.isNaN(value))), unit = units.axis(most, "time");
    const kinds = [...new Set(sent.direction)];
    return {
      data: [{ x: [0, most / unit.size], y: [0, most / unit.size], mode: "lines", name: "as predicted", line: { width: 1, color: fednet.colour("line") }, hoverinfo: "skip" },
        ...kinds.map((kind) => {
          const rows = sent.direction.map((own, row) => row).filter((row) => sent.direction[row] === kind);
          return { x: rows.map((row) => sent.predicted_s[row] / unit.size), y: rows.map((row) => sent.took_s[row] / unit.size), name: kind, mode: "markers", marker: { color: fednet.colour(kind) },
            text: rows.map((row) => `dev-${sent.device[row]}, ${share(sent.error[row])}`), hovertemplate: `%{text}: predicted %{x:.4g}, measured %{y:.4g} ${unit.symbol}<extra></extra>` };
        })],
      layout: { showlegend: true, xaxis: { title: `Predicted (${unit.symbol})`, rangemode: "tozero" }, yaxis: { title: `Measured (${unit.symbol})`, rangemode: "tozero" } },
    };
  }) : null;
  fednet.table(section, "transfers beside their prediction", [
    { key: "transfer", title: "Transfer", values: sent.transfer }, { key: "kind", title: "Link", values: sent.direction }, { key: "device", title: "Device", values: sent.device },
    { key: "took_s", title: "Measured", values: sent.took_s, show: units.seconds }, { key: "predicted_s", title: "Predicted", values: sent.predicted_s, show: units.seconds },
    { key: "error", title: "Difference", values: sent.error, show: share }, { key: "starved_s", title: "Queue empty", values: sent.starved_s, show: units.seconds },
    { key: "away_s", title: "Device away", values: sent.away_s, show: units.seconds }, { key: "repeated_byte", title: "Bytes sent again", values: sent.repeated_byte, show: units.count },
    { key: "lost", title: "Lost", values: sent.loss_reason },
  ], { page: 12 });
  if (rounds.round.length) {
    section.append(fednet.element("p", { text: "Rounds: time in which a transfer was under way, as measured and as predicted; in which devices only computed; and the rest, in which programs start or look for each other's messages." }));
    fednet.table(section, "rounds beside their prediction", [
      { key: "round", title: "Round", values: rounds.round }, { key: "took_s", title: "Measured", values: rounds.took_s, show: units.seconds },
      { key: "air_s", title: "On the air", values: rounds.air_s, show: units.seconds }, { key: "predicted_air_s", title: "Predicted on the air", values: rounds.predicted_air_s, show: units.seconds },
      { key: "compute_s", title: "Computing", values: rounds.compute_s, show: units.seconds }, { key: "waiting_s", title: "Waiting", values: rounds.waiting_s, show: units.seconds },
    ], { page: 12 });
  }
  return figure;
};
