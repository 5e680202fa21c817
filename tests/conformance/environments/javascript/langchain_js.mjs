// Agents of LangChain.js.

import * as callbacks from "@langchain/core/callbacks/manager";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { LangChainInstrumentation } from "@arizeai/openinference-instrumentation-langchain";
import { createAgent } from "langchain";
import { exporting, described, found, model, provider, run, scenario, schema, tools } from "./running.mjs";

const traced = provider(exporting());
const openinference = new LangChainInstrumentation({ tracerProvider: traced });
openinference.manuallyInstrument(callbacks);

const agent = createAgent({
  name: "workshop",
  model: new ChatOpenAI({ model: "script", apiKey: "key", configuration: { baseURL: model } }),
  tools: tools.map((name) =>
    tool(({ query }) => found(name, query), {
      name,
      description: described[name],
      schema: schema(name),
    }),
  ),
});
const said = {};

await run(traced, async ({ session, question }) => {
  const history = scenario === "memory" ? (said[session] ?? []) : [];
  const answer = await agent.invoke(
    { messages: [...history, { role: "user", content: question }] },
    { metadata: { session_id: session, thread_id: session } },
  );
  said[session] = answer.messages;
});
