// The charts: the figures over time.

import { Chart } from "./charts.js";
import { $, setText } from "./dom.js";
import { count, duration, mean, percent, sentence, span, missingReason } from "./format.js";

const CHARTS = {
  srr: new Chart({ title: "Redundancy (SRR)", about: "Share of results that repeat what the turn had. Lower is better.",
    limit: 1, format: percent }),
  results: new Chart({ title: "Results", about: "New and repeated ones, as they came.", kind: "bars", whole: true, format: count }),
  sre: new Chart({ title: "Efficiency (SRE)", about: "Share of results that are new and good, where labels are there. Higher is better.",
    limit: 1, format: percent }),
  gain: new Chart({ title: "Good gain per iteration", about: "Gain of the good documents that are new, in labelled iterations. Higher is better.", format: mean, axis: (value) => value.toFixed(1) }),
  gate: new Chart({ title: "Gate", about: "Searches skipped, and rightly skipped of labelled decisions.", limit: 1, format: percent }),
  routes: new Chart({ title: "Routes", about: "Share of searches by route.", kind: "bars", limit: 1, format: percent }),
  routing: new Chart({ title: "Routing accuracy", about: "Labelled searches that took the best route. Higher is better.", limit: 1, format: percent }),
  loops: new Chart({ title: "Loops", about: "Searches that repeat one of their turn or find nothing, and iterations that find nothing new. Lower is better.",
    limit: 1, format: percent }),
  coverage: new Chart({ title: "Label coverage", about: "Unique documents that have a label.", limit: 1, format: percent }),
  lag: new Chart({ title: "Lag", about: "How long this process was behind, of the last two hours.", format: duration }),
};
$("charts").append(...Object.values(CHARTS).map((chart) => chart.element));

const TONES = ["tone-1", "tone-2", "tone-3", "tone-4", "tone-5", "tone-6"];

export function showCharts(state) {
  const { series, decisions, figures, lag } = state;
  const quiet = figures.srr.whole || state.sums.iterations ? null : "No searches in this window.";
  const why = (figure) => quiet ?? (figure.value === null ? sentence(missingReason(figure, state)) : null);
  const base = { times: series.times, seconds: series.bucket_seconds < 60 };
  const line = (name, values, now, none, tone = "tone-1", usual = null) =>
    ({ ...base, series: [{ name, values, tone }], now, none, usual });
  const usually = ({ usual }, format) => (usual === null ? null : { value: usual, text: `usually ${format(usual)}` });
  setText($("course-text"), `Each point is over ${span(series.smoothed_seconds)} that end there, `
    + "by the time of the search. A late label corrects the past, so lines may change.");
  CHARTS.srr.update(line("SRR", series.srr, percent(figures.srr.value), quiet, "tone-1", usually(figures.srr, percent)));
  CHARTS.results.update({ ...base, none: quiet, now: count(state.sums.results), series: [
    { name: "new", values: series.unique, tone: "tone-1" },
    { name: "repeated", values: series.duplicates, tone: "tone-3" }] });
  CHARTS.sre.update(line("SRE", series.sre, percent(figures.sre.value), why(figures.sre), "tone-2", usually(figures.sre, percent)));
  CHARTS.gain.update(line("good gain", series.gain, mean(figures.gain.value), why(figures.gain), "tone-2", usually(figures.gain, mean)));
  CHARTS.coverage.update(line("labelled", series.coverage, percent(figures.coverage.value), quiet, "tone-4"));
  showDecisions(decisions, state.window);
  showLoops(state, quiet);
  const read = lag.seconds.some((value) => value !== null);
  const young = lag.times.at(-1) - lag.times[0] < 600;
  CHARTS.lag.update({ times: lag.times, seconds: young, now: duration(state.operating.lag_seconds),
    series: [{ name: "lag", values: lag.seconds, tone: "tone-4" }],
    none: read ? null : "Nothing is read here." });
}

function showLoops({ loops, no_loops: why, window }, quiet) {
  if (!loops) {
    CHARTS.loops.update({ times: [], series: [], none: sentence(why) });
    return;
  }
  const names = [["repeated_searches", "repeated"], ["empty_searches", "empty"],
    ["iterations_without_new", "nothing new"]];
  CHARTS.loops.update({ times: loops.times, seconds: loops.bucket_seconds < 60,
    now: loops.window === window ? "" : `(${loops.window})`, none: quiet,
    series: names.map(([name, title], at) => ({ name: title, values: loops[name], tone: TONES[at] })) });
}

function showDecisions(decisions, window) {
  if (!decisions) {
    const none = "No window has gate decisions and routes: see metrics.windows and metrics.series_windows.";
    for (const name of ["gate", "routes", "routing"]) CHARTS[name].update({ times: [], series: [], none });
    return;
  }
  const of = decisions.window === window ? "" : ` (${decisions.window})`;
  const base = { times: decisions.times, seconds: decisions.bucket_seconds < 60 };
  const { gate, routing } = decisions;
  CHARTS.gate.update({ ...base, now: `${percent(gate.skips.value)} skipped${of}`,
    none: gate.skips.whole ? null : "No gate decisions in this window.", series: [
      { name: "skipped", values: decisions.skip_share, tone: "tone-1" },
      { name: "rightly skipped", values: decisions.gate_efficiency, tone: "tone-2" }] });
  const routes = decisions.routes.map(({ route, share }, at) => ({ name: route, values: share, tone: TONES[at] }));
  if (decisions.routes_rest) routes.push({ name: "all others", values: decisions.routes_rest, tone: "tone-7" });
  CHARTS.routes.update({ ...base, now: of.trim(), series: routes,
    none: routes.length ? null : "No routed searches in this window." });
  CHARTS.routing.update({ ...base, now: `${percent(routing.accuracy.value)}${of}`,
    none: routing.accuracy.whole ? null : routes.length ? "No routed search has a label."
      : "No routed searches in this window.",
    series: [{ name: "best route", values: decisions.routing_accuracy, tone: "tone-2" }] });
}
