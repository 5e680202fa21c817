// The page: what is chosen, where documents come from, and where their parts are shown.

import { showCharts } from "./course.js";
import { $, el, radios, setText } from "./dom.js";
import { coverage, showWorkers } from "./group.js";
import { showAgents, showRules, showVerdict } from "./lists.js";
import { showTiles } from "./tiles.js";
import { askWorst } from "./worst.js";
import { clock, moment } from "./words.js";

const STALE_SECONDS = 15;
const WORST_SECONDS = 30;
const ASK_SECONDS = 5;
const STREAM_AGAIN_SECONDS = 60;

const chosen = fromAddress();
let shown = null; // the document that is on the page
let arrived = 0; // when it came, by our own clock

// -- what is chosen -------------------------------------------------------------------------------

function fromAddress() {
  const asked = new URLSearchParams(location.search);
  return { agent: asked.get("agent") ?? "", window: asked.get("window") ?? "" };
}

function query() {
  const asked = new URLSearchParams();
  if (chosen.agent) asked.set("agent", chosen.agent);
  if (chosen.window) asked.set("window", chosen.window);
  return asked.toString();
}

function choose(change) {
  Object.assign(chosen, change);
  const asked = query();
  history.replaceState(null, "", asked ? `?${asked}` : location.pathname);
  showChoice();
  listen();
  askWorst(query());
}

function showChoice() {
  if (!shown) return;
  const names = shown.agents.map((row) => row.agent);
  if (chosen.agent && !names.includes(chosen.agent)) names.push(chosen.agent);
  const select = $("agent");
  const key = JSON.stringify([shown.dimension, names]);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    $("agent-label").textContent = shown.dimension === "agent" ? "Agent" : "Release";
    select.replaceChildren(el("option", { value: "" }, `all ${shown.dimension}s`),
      ...names.map((name) => el("option", { value: name }, name)));
  }
  select.value = chosen.agent;
  const at = chosen.window || shown.window;
  radios($("windows"), "window", shown.windows.map((name) => [name, name]), at,
    (name) => choose({ window: name }));
}

// -- where documents come from --------------------------------------------------------------------

let stream = null;
let asking = null;
let streamAgain = 0;
let listening = 0; // counts up, so that an answer to an earlier choice is left aside

function listen() {
  stream?.close();
  stream = null;
  clearTimeout(asking);
  listening += 1;
  if (document.hidden) return;
  const mine = listening;
  stream = new EventSource(`api/stream?${query()}`);
  stream.onmessage = (event) => {
    if (mine === listening) take(JSON.parse(event.data));
  };
  stream.onerror = () => {
    if (mine !== listening) return;
    connection();
    if (stream.readyState === EventSource.CLOSED) {
      streamAgain = Date.now() + STREAM_AGAIN_SECONDS * 1000;
      ask(mine);
    }
  };
}

/** Without a stream (too many pages are open, or a proxy does not pass it): ask now and then. */
async function ask(mine) {
  if (mine !== listening || document.hidden) return;
  if (Date.now() > streamAgain) {
    listen();
    return;
  }
  try {
    const answer = await fetch(`api/state?${query()}`, { headers: { Accept: "application/json" } });
    if (mine !== listening) return;
    if (answer.ok) {
      take(await answer.json());
    } else if (answer.status === 400 && query()) {
      choose({ window: "", agent: "" }); // the address names what there is not
      return;
    }
  } catch {
    connection();
  }
  asking = setTimeout(() => ask(mine), ASK_SECONDS * 1000);
}

function take(state) {
  shown = state;
  arrived = Date.now();
  connection();
  showChoice();
  show(state);
}

function connection() {
  const lost = !shown || Date.now() - arrived > STALE_SECONDS * 1000;
  let state = "live";
  let text = "live";
  if (!shown) [state, text] = ["waiting", "connecting"];
  else if (lost) [state, text] = ["lost", `no answer since ${clock(arrived / 1000, true)}`];
  else if (!stream || stream.readyState === EventSource.CLOSED) text = `every ${ASK_SECONDS} s`;
  $("connection").dataset.state = state;
  if ($("connection-text").textContent !== text) $("connection-text").textContent = text;
  if (shown && lost) showVerdict({ ...shown, verdict: lostVerdict(shown.verdict) });
}

/** What is wrong now is not known without an answer; what was wrong is still shown. */
function lostVerdict({ level, title }) {
  return { level: level === "ok" ? "unknown" : level, title: "This worker does not answer",
    text: `What is below is as of ${clock(arrived / 1000, true)}. It said then: ${title}.` };
}

// -- what is shown --------------------------------------------------------------------------------

function show(state) {
  showCoverage(state);
  showVerdict(state);
  showTiles(state);
  showCharts(state);
  showAgents(state);
  showWorkers(state.partitions);
  showRules(state);
}

function showCoverage(state) {
  setText($("coverage"), coverage(state.partitions));
  setText($("as-of"), `As of ${moment(state.now / 1e6)}. Times are in this browser’s time zone.`);
  setText($("version"), `stream-metrics ${state.version}`);
}

// -- begin ----------------------------------------------------------------------------------------

$("agent").addEventListener("change", (event) => choose({ agent: event.target.value }));
document.addEventListener("choose-agent", (event) => {
  choose({ agent: event.detail });
  $("agent").focus();
});
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) askWorst(query());
});
setInterval(connection, 1000);
setInterval(() => document.hidden || askWorst(query()), WORST_SECONDS * 1000);
listen();
askWorst(query());
