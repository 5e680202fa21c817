// The page: the chosen view, the connection to the worker, and the parts of the document.

import { showCharts } from "./timeseries.js";
import { $, el, radios, setText } from "./dom.js";
import { coverage, showWorkers } from "./group.js";
import { showAgents, showRules, showVerdict } from "./verdict.js";
import { showProcess } from "./process.js";
import { showTiles } from "./tiles.js";
import { loadWorst } from "./worst.js";
import { clock, moment, sinceText } from "./format.js";

const STALE_SECONDS = 15;
const WORST_SECONDS = 30;
const POLL_SECONDS = 5;
const STREAM_RETRY_SECONDS = 60;

const chosen = viewFromUrl();
let shown = null; // the document on the page
let receivedAt = 0; // by the browser's clock

// -- the chosen view -------------------------------------------------------------------------------

function viewFromUrl() {
  const parameters = new URLSearchParams(location.search);
  return { agent: parameters.get("agent") ?? "", window: parameters.get("window") ?? "" };
}

function query() {
  const parameters = new URLSearchParams();
  if (chosen.agent) parameters.set("agent", chosen.agent);
  if (chosen.window) parameters.set("window", chosen.window);
  return parameters.toString();
}

function choose(change) {
  Object.assign(chosen, change);
  const parameters = query();
  history.replaceState(null, "", parameters ? `?${parameters}` : location.pathname);
  showChoice();
  subscribe();
  loadWorst(query());
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

// -- the connection ----------------------------------------------------------------------------

let stream = null;
let pollTimer = null;
let streamRetryAt = 0;
let subscription = 0; // increases, so that answers to an earlier choice are ignored

function subscribe() {
  stream?.close();
  stream = null;
  clearTimeout(pollTimer);
  subscription += 1;
  if (document.hidden) return;
  const mine = subscription;
  stream = new EventSource(`api/stream?${query()}`);
  stream.onmessage = (event) => {
    if (mine === subscription) applyState(JSON.parse(event.data));
  };
  stream.onerror = () => {
    if (mine !== subscription) return;
    showConnection();
    if (stream.readyState === EventSource.CLOSED) {
      streamRetryAt = Date.now() + STREAM_RETRY_SECONDS * 1000;
      poll(mine);
    }
  };
}

/** Poll while there is no stream: too many pages are open, or a proxy does not pass it. */
async function poll(mine) {
  if (mine !== subscription || document.hidden) return;
  if (Date.now() > streamRetryAt) {
    subscribe();
    return;
  }
  try {
    const answer = await fetch(`api/state?${query()}`, { headers: { Accept: "application/json" } });
    if (mine !== subscription) return;
    if (answer.ok) {
      applyState(await answer.json());
    } else if (answer.status === 400 && query()) {
      choose({ window: "", agent: "" }); // the URL names an unknown window or agent
      return;
    }
  } catch {
    showConnection();
  }
  pollTimer = setTimeout(() => poll(mine), POLL_SECONDS * 1000);
}

function applyState(state) {
  shown = state;
  receivedAt = Date.now();
  showConnection();
  showChoice();
  show(state);
}

function showConnection() {
  const lost = !shown || Date.now() - receivedAt > STALE_SECONDS * 1000;
  let state = "live";
  let text = "connected"; // to this worker, which says nothing of what sends it events
  if (!shown) [state, text] = ["waiting", "connecting"];
  else if (lost) [state, text] = ["lost", `no answer since ${clock(receivedAt / 1000, true)}`];
  else if (shown.waiting) [state, text] = ["waiting", `waiting for ${shown.waiting.for}${sinceText(shown.waiting.since)}`];
  else if (!stream || stream.readyState === EventSource.CLOSED) text = `every ${POLL_SECONDS} s`;
  $("connection").dataset.state = state;
  if ($("connection-text").textContent !== text) $("connection-text").textContent = text;
  if (shown && lost) showVerdict({ ...shown, verdict: disconnectedVerdict(shown.verdict) });
}

/** The verdict without a connection: the current state is unknown; the last one is still shown. */
function disconnectedVerdict({ level, title }) {
  return { level: level === "ok" ? "unknown" : level, title: "This worker does not answer",
    text: `What is below is as of ${clock(receivedAt / 1000, true)}. It said then: ${title}.` };
}

// -- rendering ------------------------------------------------------------------------------------

function show(state) {
  showCoverage(state);
  showVerdict(state);
  showTiles(state);
  showCharts(state);
  showAgents(state);
  showWorkers(state);
  showRules(state);
  showProcess(state);
}

function showCoverage(state) {
  setText($("coverage"), coverage(state));
  setText($("as-of"), `As of ${moment(state.now / 1e6)}. Times are in this browser’s time zone.`);
  setText($("version"), `stream-metrics ${state.version} · engine: ${state.engine}`);
}

// -- start ----------------------------------------------------------------------------------------

$("agent").addEventListener("change", (event) => choose({ agent: event.target.value }));
document.addEventListener("choose-agent", (event) => {
  choose({ agent: event.detail });
  $("agent").focus();
});
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", () => {
  subscribe();
  if (!document.hidden) loadWorst(query());
});
setInterval(showConnection, 1000);
setInterval(() => document.hidden || loadWorst(query()), WORST_SECONDS * 1000);
subscribe();
loadWorst(query());
