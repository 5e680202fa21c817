// The tiles: the current figures.

import { $, el, levelBadge, renderOnce, setText } from "./dom.js";
import { NONE, clock, count, duration, mean, moment, percent, plural, isFlagged, missingReason, sinceText } from "./format.js";

/** The worst level that a rule flags, and the agents with it. */
function fault(state, name) {
  const found = state.rules.find((each) => each.name === name)?.findings.filter(isFlagged) ?? [];
  if (!found.length) return null;
  const { level } = found[0];
  const agents = found.filter((each) => each.level === level && each.agent !== null).map((each) => each.agent);
  const whose = state.agent === null ? agents.slice(0, 2) : [];
  const more = state.agent === null && agents.length > 2 ? ` and ${agents.length - 2} more` : "";
  return { level, whose: whose.length ? `${whose.join(", ")}${more}` : "" };
}

const usualText = (figure, format) =>
  (figure.usual === null || figure.usual === undefined ? "" : `usually ${format(figure.usual)} (the day before)`);

function ratioTile(name, title, full, figure, format, part, whole, none, level) {
  const value = figure?.value ?? null;
  return { name, title, full, level, value: value === null ? NONE : format(value), exact: value,
    part: figure?.part, whole: figure?.whole,
    about: value === null ? none : `${count(figure.part)} of ${count(figure.whole)} ${whole}${part}`,
    usual: value === null ? "" : usualText(figure, format) };
}

/** Gate efficiency, with the number of searches that were not needed. */
function gateTile(gate, other, level) {
  const tile = ratioTile("gate_efficiency", "Gate efficiency",
    "Share of labelled gate decisions that correctly skipped a search", gate?.efficiency, percent, "", "",
    gate?.skips.whole ? "no gate decision has a label" : "no gate decisions", level);
  if (tile.exact !== null) {
    tile.about = `${count(gate.efficiency.part)} of ${count(gate.efficiency.whole)} labelled decisions correctly skipped a search${other}`;
    tile.usual = gate.saved.whole
      ? `${plural(gate.saved.whole, "search was", "searches were")} not needed; ${percent(gate.saved.value)} of them skipped`
      : "every search was needed";
  }
  return tile;
}

const LOOPS = [
  ["repeated_searches", "Repeated searches", "Searches that ask by the same route what an earlier search of their turn asked",
    " repeat an earlier one of their turn", "searches with a query", "searches_repeated"],
  ["empty_searches", "Empty searches", "Searches without a result", " found nothing", "searches", "searches_empty"],
  ["iterations_without_new", "Nothing new", "Iterations with a search that found no new document",
    " found no new document", "iterations", ""],
  ["trailing_without_new", "Nothing new at the end", "Iterations at the end of turns that found no new document: what stopping earlier would have saved",
    " come after the last new document of their turn", "iterations", ""],
];

/** The figures of loops, or why there are none. */
function loopTiles(state, noTraffic) {
  const { loops, no_loops: none } = state;
  const other = loops && loops.window !== state.window ? ` in ${loops.window}` : "";
  return LOOPS.map(([name, title, full, part, whole, rule]) => ratioTile(name, title, full, loops?.figures[name],
    percent, `${part}${other}`, whole, none ?? noTraffic, rule ? fault(state, rule) : null));
}

const tenths = (value) => `${(100 * value).toFixed(1)}\u202f%`;
const ESTIMATED = {
  sre: ["SRE, estimated", percent, tenths, "Search result efficiency"],
  gain: ["Gain, estimated", mean, mean, "Gain of the good new documents per iteration"],
};
const inOrder = (figures) => [...new Set([...Object.keys(ESTIMATED), ...Object.keys(figures)])].filter((name) => name in figures);

/** How many conversations of the random samples are labelled, and by whom. Those that the model has not labelled whole may be among the others. */
function sampleText({ both, people, model, unlabelled }) {
  const by = [[both, "by people and a model"], [people, "by people"], [model, "by a model alone"]].filter(([n]) => n);
  const labelled = by.map(([n, who], at) => `${at ? count(n) : plural(n, "conversation")} ${who}`).join(", ");
  const these = labelled ? ", of these or others," : "";
  const not = unlabelled ? ` ${plural(unlabelled, "conversation")}${these} ${unlabelled === 1 ? "is" : "are"} not labelled whole by the model.` : "";
  return `${labelled || "none yet"}.${not}`;
}

/** Of which turns the samples are, where they do not cover the whole window. */
function scopeText({ window, since, until }) {
  if (since === null && until === null) return `all turns of ${window}`;
  const when = since === null ? `until ${moment(until)}` : until === null ? `since ${moment(since)}` : `from ${moment(since)} to ${moment(until)}`;
  return `the turns of ${window} ${when}, as none of the others is in a sample`;
}

/** Why nothing is estimated from a model's labels, if so. */
const withoutModel = ({ behind, incomplete }, { due, no_grades: stuck }) => behind
  ? `the judge has ${plural(due, "turn")} yet to label${stuck ? ": its endpoint gives no grades" : ""}`
  : incomplete ? "over 5% of what was drawn for the model is not labelled by it" : null;

/** Estimates from labels of random samples, if there are any. */
function estimateTiles({ estimates }) {
  if (!estimates) return [];
  return inOrder(estimates.figures).map((name) => {
    const found = estimates.figures[name];
    const [title, format, fine, full] = ESTIMATED[name] ?? [`${name}, estimated`, percent, tenths, `Mean ${name} of searches`];
    const [who, best] = found.combined ? ["by people and a model together", found.combined] : ["by people alone", found.human];
    const off = name === "sre" && estimates.off.length ? ` The judge is ${estimates.off.join(", ")}.` : "";
    const why = withoutModel(found, estimates);
    const cut = why ? (found.human ? ` ${why[0].toUpperCase()}${why.slice(1)}, so its labels do not count.` : "")
      : estimates.cut_off ? " The judge's budget was spent, so its labels do not count." : "";
    const tile = { name: `estimate-${name}`, title, level: null,
      full: `${full}, from labels of random samples in ${estimates.window}`,
      usual: `For ${scopeText(estimates)}, from labels of random samples: ${sampleText(found.conversations)}${off}${cut}` };
    if (best === null && found.model === null) return { ...tile, value: NONE, exact: null, about: why ?? "nothing is labelled yet" };
    if (best === null) return { ...tile, value: format(found.model), exact: found.model, about: "by a model alone; nobody has checked it" };
    const [value, low, high] = best;
    const band = low === null ? "too few conversations for an interval" : `95% interval ${fine(low)} to ${fine(high)}`;
    return { ...tile, value: format(value), exact: value, about: `${band}, ${who}` };
  });
}

/** Whether the brokers no longer say how far the topics reach. */
const lagIsUnknown = ({ lag_seconds: seconds, lag_known_at: knownAt }) => seconds === null && knownAt !== null;

function lagText(operating) {
  if (operating.lag_seconds !== null) return `${plural(operating.lag_records, "record")} left to read`;
  return lagIsUnknown(operating) ? `${sinceText(operating.lag_known_at, "")}, when Kafka last told it`
    : "nothing is read here";
}

const COUNTED = "Counted are settled iterations: those with labels for nine in ten of their documents";
const BY_ANYONE = "whoever labelled them";

/** Where to look if most of what is known of SRE is by a model, which an estimate corrects. */
function seeEstimate({ estimates }) {
  const found = estimates?.figures.sre;
  if (!found || (!found.combined && !found.human)) return "";
  const { both, people, model } = found.conversations;
  return model > both + people ? ", most conversations of the samples by a model alone: see SRE, estimated" : "";
}

function tiles(state) {
  const { figures, decisions, operating, sums } = state;
  const noTraffic = sums.iterations ? "no results in this window" : "no searches in this window";
  const other = decisions && decisions.window !== state.window ? ` in ${decisions.window}` : "";
  const gate = decisions?.gate;
  const routing = decisions?.routing;
  const perIteration = ratioTile("gain", "Good gain", `Gain of the good new documents per iteration. ${COUNTED}`,
    figures.gain, mean, "", "", missingReason(figures.gain, state), fault(state, "gain_drop"));
  if (perIteration.exact !== null) {
    perIteration.about = `per iteration; ${count(figures.gain.part)} in ${plural(figures.gain.whole, "settled iteration")}, ${BY_ANYONE}`;
  }
  return [
    ratioTile("srr", "Redundancy (SRR)", "Search result redundancy: share of results that repeat an earlier result of their turn",
      figures.srr, percent, " repeat", "results", noTraffic, fault(state, "srr_spike")),
    ratioTile("sre", "Efficiency (SRE)", `Search result efficiency: share of results that are new and good. ${COUNTED}`,
      figures.sre, percent, ` of settled iterations are new and good, ${BY_ANYONE}${seeEstimate(state)}`, "results", missingReason(figures.sre, state), fault(state, "sre_drop")),
    perIteration,
    ratioTile("coverage", "Labelled", "Unique documents that have a label",
      figures.coverage, percent, " have a label", "documents", noTraffic, fault(state, "labels_missing")),
    gateTile(gate, other, fault(state, "missed_retrievals")),
    ratioTile("routing_accuracy", "Routing accuracy", "Searches that took the best route, of labelled ones",
      routing?.accuracy, percent, ` took the best route${other}`, "labelled searches",
      routing?.routes.length ? "no routed search has a label" : "no routed searches",
      fault(state, "routing_drop")),
    ...loopTiles(state, noTraffic),
    ...estimateTiles(state),
    { name: "results", title: "Results", full: "Results that searches returned",
      level: fault(state, "results_drop"),
      value: count(sums.results), exact: sums.results,
      about: `in ${plural(sums.iterations, "iteration")} of ${plural(sums.turns, "turn")}`, usual: "" },
    { name: "lag", title: "Lag", full: "How far this process is behind what there is to read",
      level: fault(state, "lag"), value: lagIsUnknown(operating) ? "unknown" : duration(operating.lag_seconds),
      exact: operating.lag_seconds, about: lagText(operating),
      usual: operating.read_up_to ? `read up to ${clock(operating.read_up_to, true)}` : "" },
  ];
}

export function showTiles(state) {
  const box = $("tiles");
  const shown = tiles(state);
  const ids = new Set(shown.map(({ name }) => `tile-${name}`));
  for (const old of [...box.children]) if (!ids.has(old.id)) old.remove();
  for (const tile of shown) {
    let made = document.getElementById(`tile-${tile.name}`);
    if (!made) {
      made = el("article", { id: `tile-${tile.name}`, class: "card tile" },
        el("h3", { title: tile.full }, tile.title), el("p", { class: "value" }),
        el("p", { class: "about" }), el("p", { class: "usual muted" }), el("p", { class: "state" }));
      box.append(made);
    }
    const [, value, about, usual, level] = made.children;
    setText(value, tile.value);
    setText(about, tile.about);
    setText(usual, tile.usual);
    value.dataset.exact = tile.exact ?? "";
    value.dataset.part = tile.part ?? "";
    value.dataset.whole = tile.whole ?? "";
    made.dataset.level = tile.level?.level ?? "";
    renderOnce(level, tile.level, () => (tile.level ? [levelBadge(tile.level.level), el("span", { class: "whose" }, tile.level.whose)] : []));
  }
}
