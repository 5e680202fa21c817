// Loops over OpenAI's API, without a framework.

import { OpenAIInstrumentation as OpenInference } from "@arizeai/openinference-instrumentation-openai";
import { trace } from "@opentelemetry/api";
import { OpenAIInstrumentation as OpenLLMetry } from "@traceloop/instrumentation-openai";
import OpenAI from "openai";
import { exporting, described, found, instrumentation, model, provider, run, scenario, schema, tools } from "./running.mjs";

const traced = provider(exporting());
const known = {
  openinference: () => new OpenInference({ tracerProvider: traced }),
  openllmetry: () => new OpenLLMetry(),
};
const instrumented = known[instrumentation]();
instrumented.setTracerProvider(traced);
instrumented.manuallyInstrument(OpenAI);

const client = new OpenAI({ baseURL: model, apiKey: "key" });
const offered = tools.map((name) => ({
  name,
  description: described[name],
  parameters: schema(name),
}));
const said = {};

/** What a tool returns for a call, as text. */
async function result(call) {
  const { query } = JSON.parse(call.arguments);
  const returned = await found(call.name, query);
  return typeof returned === "string" ? returned : JSON.stringify(returned);
}

async function complete(history) {
  const asked = {
    model: "script",
    messages: history,
    tools: offered.map((one) => ({ type: "function", function: one })),
  };
  if (scenario !== "stream") {
    return (await client.chat.completions.create(asked)).choices[0].message;
  }
  let whole; // the server sends all of it at once
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    whole ??= chunk.choices[0].delta;
  }
  return whole;
}

async function chat(question, session) {
  const history = scenario === "memory" ? (said[session] ??= []) : [];
  history.push({ role: "user", content: question });
  for (;;) {
    const answer = await complete(history);
    history.push(answer);
    if (!answer.tool_calls) return;
    for (const call of answer.tool_calls) {
      const content = await result(call.function);
      history.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

async function respond(question) {
  let given = [{ role: "user", content: question }];
  let before;
  for (;;) {
    const answer = await client.responses.create({
      model: "script",
      input: given,
      tools: offered.map((one) => ({ type: "function", ...one })),
      ...(before && { previous_response_id: before }),
    });
    const calls = answer.output.filter((one) => one.type === "function_call");
    if (!calls.length) return;
    if (scenario === "chained") [before, given] = [answer.id, []];
    else given = [...given, ...answer.output];
    for (const call of calls) {
      given.push({ type: "function_call_output", call_id: call.call_id, output: await result(call) });
    }
  }
}

await run(traced, ({ session, question }) =>
  trace.getTracer("program").startActiveSpan("turn", { attributes: { "session.id": session } }, async (span) => {
    await (scenario.startsWith("resp") || scenario === "chained" ? respond : chat)(question, session);
    span.end();
  }),
);
