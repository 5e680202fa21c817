// One process without servers: how to connect an agent, what came, and what its log keeps.

import { $, el, renderOnce, setText } from "./dom.js";
import { bytes, count, plural } from "./format.js";

const traces = () => el("a", { href: "traces" }, "Traces");
const TOPICS = { events: "events", spans: "traces, in parts" };

export function showProcess({ process, agents, sums, operating }) {
  const empty = process !== null && !agents.length && !sums.turns;
  $("connect").hidden = !process;
  for (const part of document.querySelectorAll(".figures")) part.hidden = empty;
  if (!process) return;
  renderOnce($("pages"), "", () => [" · ", traces(), " · ", el("a", { href: "conversations" }, "Latest conversations")]);
  renderOnce($("bridge-hint"), "", () => ["Is an agent missing whose traces are sent? What is refused of them, and what helps, is under ",
    traces(), "."]);
  const old = empty && operating.lag_records === 0 && (process.log?.records ?? []).some(({ topic, records }) => topic === "events" && records);
  showWays(process, empty, old ? " No search among the events of the log is as recent as the longest window." : "");
  showLog(process);
}

/** The first thing on the page until an agent has searched, and out of the way afterwards. */
function showWays({ ways, received }, empty, old) {
  setText($("connect-text"), cameText(received) + old);
  renderOnce($("ways"), ways, () => ways.map(({ title, about, text }) => el("article", { class: "card way" },
    el("div", { class: "way-head" }, el("h3", {}, title), copyButton(title, text)),
    el("p", { class: "muted" }, about),
    el("pre", { tabindex: "0", role: "region", "aria-label": `Lines for: ${title}` }, el("code", {}, text.trimEnd())))));
  const place = empty ? $("verdict") : $("log");
  if (place.nextElementSibling !== $("connect")) place.after($("connect"));
}

function copyButton(title, text) {
  if (!navigator.clipboard) return null; // a page that came over the network without TLS
  const button = el("button", { type: "button", class: "link" }, "Copy");
  button.setAttribute("aria-label", `Copy the lines for: ${title}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed"; // by the browser's settings
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return button;
}

function cameText({ events, spans, refused, open_traces: open }) {
  if (!events && !spans && !refused) return "Nothing has come since this process started.";
  const parts = [spans || open ? plural(spans, "span") : "", events ? plural(events, "event") : ""].filter(Boolean);
  const came = parts.length ? `${parts.join(" and ")} came since this process started` : "No event was accepted since this process started";
  const told = [open ? `${plural(open, "trace")} may still get spans` : "",
    refused ? `${plural(refused, "event was", "events were")} refused, and the sender told why` : ""].filter(Boolean);
  return `${[came, ...told].join("; ")}.`;
}

function showLog({ folder, log }) {
  $("log").hidden = !log;
  if (!log) return;
  setText($("log-text"), `What was accepted is kept in ${folder} for the times below. The file there has ${bytes(log.file_bytes)}; `
    + `above ${bytes(log.max_bytes)}, the oldest goes sooner. Figures do not depend on that.`);
  const rows = log.records;
  const head = ["kept", "for", "records", "deleted by age", "deleted by size"];
  renderOnce($("logs").tHead, head, () => [el("tr", {}, ...head.map((name, at) =>
    el("th", { scope: "col", class: at > 1 ? "number" : null }, name)))]);
  renderOnce($("logs").tBodies[0], rows, () => rows.map(({ topic, kept_for: age, records, aged, crowded }) =>
    el("tr", {}, el("th", { scope: "row" }, TOPICS[topic] ?? topic), el("td", {}, age),
      ...[records, aged, crowded].map((number) => el("td", { class: "number" }, count(number))))));
}
