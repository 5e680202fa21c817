// Agents of Mastra.

import { createOpenAICompatible } from "openai-compatible7";
import { ArizeExporter } from "@mastra/arize";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { createStep, createWorkflow } from "@mastra/core/workflows";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { z } from "zod";
import { described, found, instrumentation, model, run, scenario, schema, tools } from "./running.mjs";

const script = createOpenAICompatible({ name: "script", baseURL: model, apiKey: "key" })("script");
const offered = Object.fromEntries(
  tools.map((name) => [
    name,
    createTool({
      id: name,
      description: described[name],
      inputSchema: schema(name),
      execute: ({ query }) => found(name, query),
    }),
  ]),
);
const named = (name, rest) =>
  new Agent({ id: name, name, instructions: "Look it up.", model: script, ...rest });

const workshop = named("workshop", { description: "Ask the researcher.", tools: offered });
const research = createTool({
  id: "research",
  description: "Ask the researcher.",
  inputSchema: { type: "object", properties: { question: { type: "string" } }, required: ["question"] },
  execute: async ({ question }, context) =>
    (await mastra.getAgent("workshop").generate(question, { tracingContext: context?.tracingContext })).text,
});
const desk = named("desk", { tools: { research } });
const writer = named("writer", {});

/** A step in which an agent is asked, and what it said is handed on. */
const step = (id, agent) =>
  createStep({
    id,
    inputSchema: z.object({ prompt: z.string() }),
    outputSchema: z.object({ prompt: z.string() }),
    execute: async ({ inputData, tracingContext }) => ({
      prompt: (await agent.generate(inputData.prompt, { maxSteps: 9, tracingContext })).text,
    }),
  });
const flow = createWorkflow({
  id: "flow",
  inputSchema: z.object({ prompt: z.string() }),
  outputSchema: z.object({ prompt: z.string() }),
})
  .then(step("look", workshop))
  .then(step("write", writer))
  .commit();
const endpoint = process.env.TRACES_ADDRESS;
const signals = { logs: false };
const known = {
  native: () =>
    new OtelExporter({ provider: { custom: { endpoint, protocol: "http/protobuf" } }, signals }),
  openinference: () => new ArizeExporter({ endpoint, signals }),
};
const mastra = new Mastra({
  agents: { workshop, desk, writer },
  workflows: { flow },
  logger: false,
  observability: new Observability({
    configs: {
      otel: {
        serviceName: "workshop",
        exporters: [known[instrumentation]()],
      },
    },
  }),
});
const agent = mastra.getAgent(scenario === "subagent" ? "desk" : "workshop");
const said = {};

const traced = { forceFlush: () => mastra.observability.shutdown() };
await run(traced, async ({ session, question }) => {
  const history = scenario === "memory" ? (said[session] ??= []) : [];
  history.push({ role: "user", content: question });
  if (scenario === "sequence") {
    const started = await mastra.getWorkflow("flow").createRun();
    const inputData = { prompt: question };
    return started.start({ inputData, tracingOptions: { metadata: { threadId: session } } });
  }
  const options = { maxSteps: 9, tracingOptions: { metadata: { threadId: session } } };
  if (scenario === "stream") return (await agent.stream(history, options)).text;
  const answer = await agent.generate(history, options);
  history.push(...answer.response.messages);
});
