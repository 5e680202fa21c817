// Formats figures and times as text.

const GROUPED = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const SHORT_TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const LONG_TIME = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const MOMENT = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

export const NONE = "–";

export const count = (value) => (value === null ? NONE : GROUPED.format(value));

/** A share in percent, with one decimal below 10 %, without decimals above. */
export function percent(value) {
  if (value === null) return NONE;
  const hundred = value * 100;
  const digits = hundred !== 0 && Math.abs(hundred) < 9.95 ? 1 : 0;
  return `${hundred.toFixed(digits)}\u202f%`;
}

export const mean = (value) => (value === null ? NONE : value.toFixed(2));

/** A duration in the largest suitable unit. */
export function duration(seconds) {
  if (seconds === null) return NONE;
  if (seconds < 10) return `${seconds.toFixed(1)}\u202fs`;
  if (seconds < 120) return `${Math.round(seconds)}\u202fs`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}\u202fmin`;
  return `${(seconds / 3600).toFixed(1)}\u202fh`;
}

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/** A size in the largest suitable unit. */
export function bytes(number) {
  const at = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, number)) / 10));
  const value = number / 1024 ** at;
  return `${value.toFixed(at && value < 9.95 && value % 1 ? 1 : 0)}\u202f${UNITS[at]}`;
}

/** A round duration, such as that of a bucket. */
export function span(seconds) {
  for (const [size, unit] of [[3600, "h"], [60, "min"]]) {
    if (seconds >= size && Number.isInteger((seconds * 10) / size)) return `${seconds / size}\u202f${unit}`;
  }
  return `${seconds}\u202fs`;
}

export const clock = (unixSeconds, withSeconds) =>
  (withSeconds ? LONG_TIME : SHORT_TIME).format(unixSeconds * 1000);

/** Since when something is so, to be put after it with a separator; empty if that is not known. */
export const sinceText = (unixSeconds, separator = " ") =>
  (unixSeconds === null || unixSeconds === undefined ? "" : `${separator}since ${clock(unixSeconds, true)}`);

export const moment = (unixSeconds) => MOMENT.format(unixSeconds * 1000);

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/** Why SRE or gain has no value; null if it has one. */
export function missingReason(figure, { figures, sums }) {
  if (figure.value !== null) return null;
  if (!sums.iterations) return "no searches in this window";
  if (!figures.coverage.whole) return "no new documents in this window";
  return figures.coverage.part ? "no iteration with results is settled: that takes labels for nine in ten of its documents"
    : "no document has a label";
}

const FAULTS = ["critical", "warning"];

/** Whether a finding is a fault, or a figure above a threshold that may not be unusual. */
export const isFlagged = ({ level, above }) => FAULTS.includes(level) || above;

export const LEVELS = {
  ok: { sign: "✓", text: "fine" },
  warning: { sign: "!", text: "warning" },
  critical: { sign: "‼", text: "critical" },
  unknown: { sign: "?", text: "cannot tell" },
  none: { sign: "–", text: "nothing to judge" },
};
