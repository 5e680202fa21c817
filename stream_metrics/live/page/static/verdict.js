// The verdict, the agents, the rules.

import { $, agentButton, el, levelBadge, externalLink, renderOnce, setText } from "./dom.js";
import { clock, count, mean, percent, isFlagged, sentence, sinceText } from "./format.js";

const SHOWN_WRONG = 6;
const SHOWN_NAMES = 3;

/** Faults, the worst first, then figures above a threshold that cannot be judged yet. */
export function showVerdict(state) {
  const found = state.rules.flatMap((rule) => rule.findings.map((finding) => ({ rule, ...finding })));
  const wrong = ["critical", "warning", "unknown"].flatMap((level) =>
    found.filter((finding) => finding.level === level && isFlagged(finding)));
  const { level, title } = state.verdict;
  const text = [state.verdict.text, readUpTo(state)].filter(Boolean).join(" ");
  $("verdict").dataset.level = level;
  setText($("verdict-title"), title);
  setText($("verdict-text"), text);
  $("verdict-text").hidden = !text;
  const list = $("wrong");
  const looks = new Set();
  const entries = wrong.slice(0, SHOWN_WRONG).map(({ rule, level: its, agent, why, since }) => {
    const look = looks.has(rule.look) ? "" : rule.look;
    looks.add(rule.look);
    return [its, rule.title, agent, `${why}${sinceText(since, ", ")}`, look, look && rule];
  });
  const more = wrong.length - entries.length;
  renderOnce(list, [entries, more], () => [
    ...entries.map(([its, of, agent, why, look, rule]) => el("li", {}, levelBadge(its), el("strong", {}, of),
      agent === null ? "" : el("span", {}, " · ", agentButton(agent)), el("span", {}, ` — ${why}. `), el("span", { class: "muted" }, look),
      ...(rule ? [" ", ...runbook(rule)] : []))),
    ...(more ? [el("li", { class: "muted" }, `and ${more} more, below under Rules`)] : []),
  ]);
  list.hidden = !wrong.length;
}

/** Up to when the figures are complete, while the worker waits. */
const readUpTo = ({ waiting, operating }) => (waiting && operating.read_up_to
  ? `What was written up to ${clock(operating.read_up_to, true)} is in them.` : "");

export function showAgents(state) {
  const table = $("agents");
  const head = [state.dimension, "state", "results", "SRR", "SRE", "gain", "labelled"];
  renderOnce(table.tHead, head, () => [el("tr", {}, ...head.map((name, at) =>
    el("th", { scope: "col", class: at > 1 ? `number col-${at}` : `col-${at}` }, name)))]);
  const rows = state.agents.map((row) => [row.agent, row.level, count(row.results), percent(row.srr.value),
    percent(row.sre.value), mean(row.gain.value), percent(row.coverage.value)]);
  renderOnce(table.tBodies[0], [rows, state.agent], () => rows.map(([agent, level, ...figures]) =>
    el("tr", { class: agent === state.agent ? "chosen" : null },
      el("th", { scope: "row" }, agentButton(agent)), el("td", { class: "col-1" }, levelBadge(level)),
      ...figures.map((text, at) => el("td", { class: `number col-${at + 2}` }, text)))));
  table.hidden = !rows.length;
  $("agents-none").hidden = rows.length > 0;
  setText($("agents-none"), `No ${state.dimension} has searched yet.`);
}

export function showRules(state) {
  const { missing } = state.partitions;
  renderOnce($("rules"), [state.rules, missing], () => state.rules.map((rule) => {
    const wrong = rule.findings.filter(isFlagged);
    const unknown = rule.findings.filter(({ level }) => level === "unknown");
    const told = wrong.length ? wrong : rule.findings.length === 1 ? rule.findings : [];
    const said = told.map(findingText);
    if (!told.length) said.push(el("p", {}, summary(rule, state.dimension, missing)));
    if (!told.length && !missing && unknown.length <= SHOWN_NAMES) said.push(...unknown.map(findingText));
    if (!told.length && missing && rule.of === "agent") said.push(el("p", {}, `Judged without the latest of ${missing}.`));
    if (wrong.length) said.push(el("p", {}, rule.look));
    return el("li", { class: "card", data: { level: rule.level } },
      el("div", { class: "rule-head" }, el("h3", {}, rule.title), levelBadge(rule.level)),
      ...said, el("p", { class: "muted" }, `Fires: ${rule.fires}.`),
      el("p", { class: "muted" }, rule.relation), el("p", { class: "muted" }, ...runbook(rule)));
  }));
}

const findingText = ({ agent, why, since }) => el("p", {},
  agent === null ? "" : el("strong", {}, `${agent}: `),
  agent === null ? sentence(`${why}${sinceText(since, ", ")}`) : `${why}.`);

/** A link to the runbook, or its path in the repository if `web.runbook_url` is not set. */
function runbook({ alert, runbook: file, runbook_url: url }) {
  if (url) return [externalLink(url, `Runbook of ${alert}`)];
  const parts = file.split(/(?<=\/)|(?<=[a-z])(?=[A-Z])/); // where a narrow line may break
  return ["Runbook: ", el("code", {}, ...parts.flatMap((part) => [el("wbr"), part]))];
}

/** The number of agents per level, for a rule without faults. */
function summary(rule, dimension, missing) {
  const total = rule.findings.length;
  if (!total) return `No ${dimension} has searched yet.`;
  const parts = [["ok", "fine"], ["unknown", missing ? "cannot tell" : "too little data"], ["none", "nothing to judge"]]
    .map(([level, text]) => [rule.findings.filter((found) => found.level === level), text])
    .filter(([found]) => found.length);
  if (parts.length === 1) return sentence(`${parts[0][1]} for all ${total} ${dimension}s`);
  return sentence(parts.map(([found, text]) => (found.length > SHOWN_NAMES
    ? `${text} for ${found.length} of ${total} ${dimension}s`
    : `${text} for ${found.map((finding) => finding.agent).join(", ")}`)).join("; "));
}
