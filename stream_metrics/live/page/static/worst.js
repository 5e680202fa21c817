// The worst conversations, and their repeated results. Also says which turns figures leave out.

import { $, el, externalLink, radios, renderOnce, setText } from "./dom.js";
import { clock, count, percent, plural, sentence } from "./format.js";

const RANKINGS = [["highest_srr", "highest SRR"], ["lowest_sre", "lowest SRE"],
  ["most_wasted_iterations", "most wasted iterations"], ["most_repeated_searches", "most repeated searches"]];
let ranking = RANKINGS[0][0];
let worst = null; // the answer, or its error
let asked = 0; // increases, so that answers to an earlier request are ignored

/** Load the conversations of a view, given as a query, and show them. */
export async function loadWorst(query) {
  const mine = (asked += 1);
  showWorst();
  try {
    const answer = await fetch(`api/worst?${query}`, { headers: { Accept: "application/json" } });
    const body = await answer.json();
    if (mine !== asked) return;
    worst = answer.ok ? body : { error: body.error };
  } catch {
    if (mine !== asked) return;
    worst = { error: "this worker does not answer" };
  }
  showWorst();
}

function showWorst() {
  radios($("rankings"), "ranking", RANKINGS, ranking, (choice) => {
    ranking = choice;
    showWorst();
  });
  if (!worst) return;
  const rows = worst.error ? [] : worst[ranking];
  const list = $("worst-list");
  const open = new Set([...list.querySelectorAll("details[open]")].map((each) => each.dataset.id));
  renderOnce(list, [rows, ranking], () => rows.map((row) => worstItem(row, open)));
  list.hidden = !rows.length;
  $("worst-none").hidden = rows.length > 0;
  setText($("worst-none"), worst.error ? `Not available: ${worst.error}.` : nothingWorst());
  setText($("worst-text"), worst.error ? "" : worstLead());
  const runaways = worst.error ? [] : worst.runaway_turns;
  renderOnce($("runaway-list"), runaways, () => runaways.map(runawayItem));
  $("runaways").hidden = !runaways.length;
  const cut = cutText();
  $("latest").hidden = !worst.readable;
  const one = worst.agent && worst.agent !== "other";
  $("latest-link").setAttribute("href", one ? `conversations?${new URLSearchParams({ agent: worst.agent })}` : "conversations");
  $("beyond-limit").hidden = !cut;
  setText($("beyond-limit"), cut && sentence(cut));
}

/** What figures leave out, or why that is not known; empty if nothing is left out. */
function cutText() {
  if (worst.error) return `whether turns are beyond a limit is not known: ${worst.error}`;
  if (worst.beyond_limit.text) return worst.beyond_limit.text;
  return worst.complete ? ""
    : `whether turns are beyond a limit is known of the latest ${count(worst.max_conversations)} conversations only: none is`;
}

function worstLead() {
  const { read, total } = worst.partitions;
  const whose = total === null || read.length < total ? `${read.length} of ${total ?? "?"}` : `all ${total}`;
  const where = total === 1 && read.length === 1 ? "" : `, of ${whose} partitions`;
  const looked = `${plural(worst.conversations, "conversation")} in ${worst.window}${where}`;
  const not = worst.complete ? "" : `, the latest ones: no more than ${count(worst.max_conversations)} are read`;
  return `Of ${looked}${not}. SRR and SRE are ranked from ${worst.min_results} results on. `
    + "Results are named by their result_id.";
}

function nothingWorst() {
  if (!worst.conversations) return "No conversation has searched in this window.";
  const judged = worst.judged[ranking];
  const few = { highest_srr: `${worst.min_results} results`, lowest_sre: `${worst.min_results} labelled results`,
    most_wasted_iterations: "an iteration whose documents are labelled",
    most_repeated_searches: "a search whose query is known" }[ranking];
  if (!judged) return `Cannot tell: no conversation has ${few}.`;
  if (ranking === "highest_srr") return `None of the ${plural(judged, "conversation")} with ${few} or more repeats any.`;
  return ranking === "most_repeated_searches" ? `None of the ${plural(judged, "conversation")} with queries repeats a search.`
    : `No iteration was wasted in the ${plural(judged, "conversation")} with labelled iterations.`;
}

/** A turn with very many iterations. */
const runawayItem = (turn) => el("li", {}, el("code", {}, turn.conversation_id), el("span", { class: "muted" }, ` ${turn.agent}, `),
  `turn ${turn.turn_text}: ${plural(turn.iterations, "iteration")}, the latest at ${clock(turn.last_ms / 1000, true)} `,
  worst.readable ? readLink(turn.conversation_id, turn.turn) : null, " ",
  turn.url ? externalLink(turn.url, "Open its trace") : null);

/** A link to the page of a conversation, which is about its latest turn if none is given. */
const readLink = (id, turn) => el("a", {
  href: `conversation?${new URLSearchParams({ id, ...(turn === undefined ? {} : { turn }) })}` }, "Read it");

function worstItem(row, open) {
  const facts = [["SRR", percent(row.srr), ""], ["SRE", percent(row.sre), ""],
    ["repeated", `${count(row.duplicates)} of ${count(row.results)}${row.beyond_limit ? "+" : ""}`, " results"],
    ["asked again", ...(row.queried_searches ? [`${count(row.repeated_searches)} of ${count(row.queried_searches)}`, " searches"] : ["–", ""])],
    ["wasted", `${row.wasted_iterations} of ${row.iterations}`, " iterations"]];
  const details = el("details", { data: { id: row.conversation_id }, open: open.has(row.conversation_id) },
    el("summary", { data: { focus: `worst ${row.conversation_id}` } },
      el("code", {}, row.conversation_id), el("span", { class: "muted agents" }, row.agents.join(", ")),
      el("span", { class: "facts" }, ...facts.map(([name, value, unit]) =>
        el("span", {}, el("span", { class: "muted" }, `${name} `), value, el("span", { class: "unit" }, unit))))),
    worst.readable ? el("p", {}, readLink(row.conversation_id, row.pairs[0]?.turn)) : null,
    row.url ? el("p", {}, externalLink(row.url, "Open its trace"), " ", el("span", { class: "muted" }, new URL(row.url).host)) : null,
    worstPairs(row));
  return el("li", { class: "card" }, details);
}

function worstPairs(row) {
  if (!row.pairs.length) return el("p", { class: "muted" }, "No result of it repeats another.");
  const many = row.turns.length > 1;
  const head = [many ? "turn" : null, "result", "in iteration", "repeats", "of iteration", "evidence", "type"]
    .filter((name) => name !== null);
  const rows = row.pairs.map((pair) => {
    const cells = [pair.result_id, pair.iteration, pair.first_result_id, pair.first_iteration,
      pair.evidence, pair.entity_type];
    if (many) cells.unshift(pair.turn_text);
    return el("tr", {}, ...cells.map((cell) => el("td", {}, String(cell))));
  });
  const more = row.duplicates - row.pairs.length;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Repeated results of ${row.conversation_id}` },
    el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...rows)),
    more > 0 ? el("p", { class: "muted" }, `and ${count(more)} more`) : null);
}
