// Runs one program in Node: a question a line on standard input, answered by "done" on the output.

import { createInterface } from "node:readline";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

export const [instrumentation, scenario] = process.argv.slice(2);
export const model = `${process.env.MODEL_ADDRESS}/v1`;

/** The names of the scenario's tools. */
export const tools = {
  partool: ["search_handbook", "search_store"],
  other: ["search_handbook", "list_orders"],
  innocent: ["consult"],
}[scenario] ?? ["search_handbook"];

export const described = {
  search_handbook: "Search the handbook.",
  search_store: "Search the store.",
  list_orders: "List the orders of a customer.",
  consult: "Ask Anna.",
};

/** What a tool is asked for, as a JSON schema. */
export function schema(name) {
  const argument = name === "list_orders" ? "customer" : "query";
  return { type: "object", properties: { [argument]: { type: "string" } }, required: [argument] };
}

/** What a tool finds. */
export async function found(name, query) {
  const asked = new URLSearchParams({ scenario, query: query ?? "none", tool: name });
  const answer = await fetch(`${process.env.MODEL_ADDRESS}/search?${asked}`);
  return answer.json();
}

export const exporting = () =>
  new BatchSpanProcessor(new OTLPTraceExporter({ url: process.env.TRACES_ADDRESS }));

/** A provider of tracers with these span processors. */
export function provider(...processors) {
  const resource = resourceFromAttributes({ "service.name": "workshop", "service.version": "7" });
  const made = new NodeTracerProvider({ resource, spanProcessors: processors });
  made.register();
  return made;
}

/** Ask each question of the input, and export what remains. */
export async function run(traced, ask) {
  for await (const line of createInterface({ input: process.stdin })) {
    await ask(JSON.parse(line));
    console.log("done");
  }
  await traced.forceFlush();
  process.exit(0);
}
