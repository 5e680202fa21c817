// Helpers for the DOM: strings become text, never markup.

import { LEVELS } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; strings become text, never markup. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Rebuild children only if their content has changed, so that focus and selection are kept. */
export function renderOnce(node, content, build) {
  const key = JSON.stringify(content);
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  node.replaceChildren(...build());
  if (focused) node.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

export function levelBadge(level) {
  const { sign, text } = LEVELS[level];
  return el("span", { class: `level ${level}` }, el("span", { "aria-hidden": "true" }, sign),
    el("span", { class: "level-text" }, ` ${text}`));
}

/** A link to another site, which opens in a new tab. */
export const externalLink = (href, ...children) =>
  el("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);

/** A button that chooses an agent. */
export function agentButton(agent) {
  const button = el("button", { type: "button", class: "link", data: { focus: `agent ${agent}` } }, agent);
  button.addEventListener("click", () => {
    button.dispatchEvent(new CustomEvent("choose-agent", { bubbles: true, detail: agent }));
  });
  return button;
}

export function radios(box, name, choices, value, onChange) {
  const key = JSON.stringify(choices);
  if (box.dataset.key !== key) {
    box.dataset.key = key;
    box.replaceChildren(...choices.map(([choice, text]) => {
      const input = el("input", { type: "radio", name, value: choice });
      input.addEventListener("change", () => onChange(choice));
      return el("label", {}, input, el("span", {}, text));
    }));
  }
  for (const input of box.querySelectorAll("input")) input.checked = input.value === value;
}
