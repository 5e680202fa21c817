// The partitions of each worker, and the age of their figures.

import { $, el, renderOnce } from "./dom.js";
import { clock, duration, plural } from "./format.js";

const size = (shares) => shares.reduce((sum, share) => sum + share.partitions.length, 0);

/** As of when this worker’s own figures are: now, or the time up to which it had read when it began to wait. */
const asOf = ({ waiting, operating }) =>
  (waiting && operating.read_up_to ? `as of ${clock(operating.read_up_to, true)}` : waiting ? "as of before" : "as of now");

/** One line: the number of partitions in the figures, and the age of those of other workers. */
export function coverage(state) {
  const { total, shares } = state.partitions;
  const there = shares.filter((share) => share.age_seconds !== null);
  const own = size(there.filter((share) => share.own && !share.problem));
  const others = there.filter((share) => !share.own && !share.problem);
  const old = size(there.filter((share) => share.problem));
  if (state.process) return `One process over ${state.process.folder}${state.waiting ? `, ${asOf(state)}` : ""}`;
  if (total === null && !there.length) return "No partition is known yet";
  if (own === total) return `All partitions (${total}) are this worker’s, ${asOf(state)}`;
  const parts = own || !old ? [`${own || "none"} of this worker, ${asOf(state)}`] : [];
  if (others.length) {
    const names = new Set(others.map((share) => share.worker));
    const whose = names.size === 1 && others[0].worker ? others[0].worker : plural(names.size, "other worker");
    const age = Math.max(...others.map((share) => share.age_seconds));
    parts.push(`${size(others)} of ${whose}, read ${duration(age)} ago`);
  }
  if (old) parts.push(`${old} of before, see below`);
  const shown = total !== null && size(there) < total ? `${size(there)} of ${total}` : `All ${size(there)}`;
  return `${shown} partitions: ${parts.join("; ")}`;
}

/** The table of workers, if there are others. */
export function showWorkers(state) {
  const { shares } = state.partitions;
  const table = $("workers");
  $("group").hidden = shares.every((share) => share.own && !share.problem);
  const head = ["worker", "partitions", "figures"];
  renderOnce(table.tHead, head, () => [el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))]);
  const rows = shares.map((share) => [share.own ? `${share.worker} (this worker)` : share.worker ?? "not known",
    share.text, share.problem ?? (share.own ? asOf(state) : `read ${duration(share.age_seconds)} ago`)]);
  renderOnce(table.tBodies[0], rows, () => rows.map(([worker, numbers, figures]) =>
    el("tr", {}, el("th", { scope: "row" }, worker), el("td", {}, numbers), el("td", {}, figures))));
}
