"use strict";
// The page of one run: its sections in order. Their return values are stored for use from the browser console.

fednet.page((told) => {
  runStory(told);
  const live = runLive(told);
  runPath(told);
  fednet.run = {
    live,
    curves: runCurves(told), data: runData(told), timeline: timeline(told), time: runTime(told), air: runAir(told), map: runMap(told),
    spreads: runSpreads(told), losses: runLosses(told), energy: runEnergy(told), fairness: runFairness(told), tables: runTables(told),
  };
  runOrigin(told);
});
