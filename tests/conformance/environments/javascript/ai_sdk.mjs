// Agents of the Vercel AI SDK; the instrumentation is the SDK's version.

import { exporting, described, found, instrumentation, model, provider, run, scenario, schema, tools } from "./running.mjs";

const version = instrumentation.replace(/\D/g, "");
const sdk = await import(`ai${version}`);
const { generateText, jsonSchema, stepCountIs, streamText, tool } = sdk;
const { createOpenAICompatible } = await import(`openai-compatible${version}`);

const traced = provider(exporting());
if (version === "7") {
  const { LegacyOpenTelemetry, OpenTelemetry } = await import("@ai-sdk/otel");
  sdk.registerTelemetry(
    instrumentation.endsWith("legacy")
      ? new LegacyOpenTelemetry()
      : new OpenTelemetry({ runtimeContext: true }),
  );
}
const told = (sessionId) =>
  version === "7"
    ? {
        runtimeContext: { sessionId },
        telemetry: { functionId: "workshop", includeRuntimeContext: { sessionId: true } },
      }
    : {
        experimental_telemetry: { isEnabled: true, functionId: "workshop", metadata: { sessionId } },
      };
const script = createOpenAICompatible({ name: "script", baseURL: model, apiKey: "key" })("script");
const offered = Object.fromEntries(
  tools.map((name) => [
    name,
    tool({
      description: described[name],
      inputSchema: jsonSchema(schema(name)),
      execute: ({ query }) => found(name, query),
    }),
  ]),
);
const said = {};

/** What the tools for a question are: those of the scenario, or an agent that has them. */
function toolsFor(session) {
  if (scenario !== "subagent") return offered;
  const execute = async ({ question }) => {
    const messages = [{ role: "user", content: question }];
    return (await generateText({ ...common(session), messages, tools: offered })).text;
  };
  const properties = { question: { type: "string" } };
  const inputSchema = jsonSchema({ type: "object", properties, required: ["question"] });
  return { research: tool({ description: "Ask the researcher.", inputSchema, execute }) };
}

const common = (session) => ({ model: script, stopWhen: stepCountIs(9), ...told(session) });

await run(traced, async ({ session, question }) => {
  const history = scenario === "memory" ? (said[session] ??= []) : [];
  history.push({ role: "user", content: question });
  const asked = { ...common(session), messages: history, tools: toolsFor(session) };
  if (scenario === "stream") return streamText(asked).text;
  const answer = await generateText(asked);
  history.push(...answer.response.messages);
});
