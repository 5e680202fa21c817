// What is wrong, the agents, the rules.

import { $, agentButton, el, levelMark, renderOnce, setText } from "./dom.js";
import { count, mean, percent } from "./words.js";

const SHOWN_WRONG = 6;

/** What is wrong, the worst first: reasons of the worker, then rules. */
export function showVerdict(state) {
  const wrong = [];
  for (const rule of state.rules) {
    for (const found of rule.findings) {
      if (found.level === "critical" || found.level === "warning") wrong.push({ rule, ...found });
    }
  }
  wrong.sort((a, b) => (a.level === b.level ? 0 : a.level === "critical" ? -1 : 1));
  const waits = Object.keys(state.reasons).length > 0;
  const quiet = !state.figures.srr.whole && !state.figures.sre.whole;
  let level = wrong.length ? wrong[0].level : "ok";
  let title = "Nothing is wrong";
  const blind = state.rules.filter((rule) => rule.level === "unknown").length;
  let text = blind ? `No rule finds a fault; ${blind} of ${state.rules.length} have too little to go by.`
    : "No rule finds a fault.";
  if (waits) {
    title = state.reasons.redis ? "Waiting for Redis" : "This worker is not reading";
    text = "Figures stand as they were last written, and go on from there.";
  } else if (wrong.length) {
    title = wrong.length === 1 ? "One thing needs a look" : `${wrong.length} things need a look`;
    text = "";
  } else if (quiet && !state.agents.some((row) => row.results)) {
    level = "unknown";
    title = "No searches yet";
    text = "Nothing has been searched in this window. Figures appear with the first search event.";
  }
  $("verdict").dataset.level = level;
  setText($("verdict-title"), title);
  setText($("verdict-text"), text);
  $("verdict-text").hidden = !text;
  const list = $("wrong");
  const looks = new Set();
  const entries = wrong.slice(0, SHOWN_WRONG).map(({ rule, level: its, agent, why }) => {
    const look = looks.has(rule.look) ? "" : rule.look;
    looks.add(rule.look);
    return [its, rule.title, agent, why, look];
  });
  const more = wrong.length - entries.length;
  renderOnce(list, [entries, more], () => [
    ...entries.map(([its, of, agent, why, look]) => el("li", {}, levelMark(its), el("strong", {}, of),
      agent === null ? "" : el("span", {}, " · ", agentButton(agent)), el("span", {}, ` — ${why}. `), el("span", { class: "muted" }, look))),
    ...(more ? [el("li", { class: "muted" }, `and ${more} more, below under Rules`)] : []),
  ]);
  list.hidden = !wrong.length;
}

export function showAgents(state) {
  const table = $("agents");
  const head = [state.dimension, "state", "results", "SRR", "SRE", "gain", "labelled"];
  renderOnce(table.tHead, head, () => [el("tr", {}, ...head.map((name, at) =>
    el("th", { scope: "col", class: at > 1 ? `number col-${at}` : `col-${at}` }, name)))]);
  const rows = state.agents.map((row) => [row.agent, row.level, count(row.results), percent(row.srr.value),
    percent(row.sre.value), mean(row.gain.value), percent(row.coverage.value)]);
  renderOnce(table.tBodies[0], [rows, state.agent], () => rows.map(([agent, level, ...figures]) =>
    el("tr", { class: agent === state.agent ? "chosen" : null },
      el("th", { scope: "row" }, agentButton(agent)), el("td", { class: "col-1" }, levelMark(level)),
      ...figures.map((text, at) => el("td", { class: `number col-${at + 2}` }, text)))));
  table.hidden = !rows.length;
  $("agents-none").hidden = rows.length > 0;
  setText($("agents-none"), `No ${state.dimension} has searched yet.`);
}

export function showRules(state) {
  renderOnce($("rules"), state.rules, () => state.rules.map((rule) => {
    const wrong = rule.findings.filter((found) => found.level === "critical" || found.level === "warning");
    const told = wrong.length ? wrong : rule.findings.slice(0, rule.findings.length === 1 ? 1 : 0);
    const said = told.map((found) => el("p", {},
      found.agent === null ? "" : el("strong", {}, `${found.agent}: `),
      found.agent === null ? sentence(found.why) : `${found.why}.`));
    if (!told.length) said.push(el("p", {}, summary(rule, state.dimension)));
    if (wrong.length) said.push(el("p", {}, rule.look));
    return el("li", { class: "card", data: { level: rule.level } },
      el("div", { class: "rule-head" }, el("h3", {}, rule.title), levelMark(rule.level)),
      ...said, el("p", { class: "muted" }, `Fires: ${rule.fires}.`),
      el("p", { class: "muted" }, rule.alert ? `As the alert ${rule.alert}.` : "No alert asks this."));
  }));
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/** How many are fine where none is at fault. */
function summary(rule, dimension) {
  const fine = rule.findings.filter((found) => found.level === "ok").length;
  const total = rule.findings.length;
  if (!total) return `No ${dimension} has searched yet.`;
  if (!fine) return `Too little to go by, for all ${total} ${dimension}s.`;
  return fine === total ? `Fine for all ${total} ${dimension}s.`
    : `Fine for ${fine} of ${total} ${dimension}s; too little to go by for the others.`;
}
