// A running server, used through OpenAI's client for Node and through the AI SDK, as their users do.
//
//   npm install --prefix scripts/serving
//   node scripts/serving/node_clients.mjs http://127.0.0.1:8000/v1 [MODEL]
//
// Prints a line for each use, and exits with status 1 if one has failed. Whole answers, streams, schemas and calls are checked;
// what a model says is not.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";

const baseURL = process.argv[2], model = process.argv[3] ?? "deepseek-v3.2", apiKey = process.env.OPENAI_API_KEY ?? "any";
const Animal = z.object({ kind: z.enum(["cat", "dog"]), age: z.number().int().min(0).max(30) });
const question = "Which animal?", messages = [{ role: "user", content: question }], most = 1500;

async function check(name, run) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    console.log(`FAILED  ${name}: ${error.message} ${error.responseBody ?? ""}`);
    process.exitCode = 1;
  }
}

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

await check("openai: chat, parse", async () => {
  const format = zodResponseFormat(Animal, "animal");
  const answer = await client.chat.completions.parse({ model, messages, max_completion_tokens: most, response_format: format });
  Animal.parse(answer.choices[0].message.parsed);
});
await check("openai: chat, stream", async () => {
  const stream = client.chat.completions.stream({ model, messages, max_completion_tokens: 20, stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  assert(final.usage.completion_tokens <= 20 && ["stop", "length"].includes(final.choices[0].finish_reason));
});
await check("openai: responses, parse", async () => {
  const text = { format: zodTextFormat(Animal, "animal") };
  Animal.parse((await client.responses.parse({ model, input: question, max_output_tokens: most, text })).output_parsed);
});
await check("openai: responses, stream", async () => {
  const text = { format: zodTextFormat(Animal, "animal") };
  const stream = client.responses.stream({ model, input: question, max_output_tokens: most, text });
  let written = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") written += event.delta;
  const final = await stream.finalResponse();
  assert.equal(final.status, "completed");
  assert.equal(written, final.output_text);
  Animal.parse(final.output_parsed);
});
await check("openai: responses, a call and its result", async () => {
  const adopt = { type: "function", name: "adopt", strict: true, parameters: z.toJSONSchema(Animal) };
  const asked = { model, tools: [adopt], max_output_tokens: most };
  const first = await client.responses.create({ ...asked, input: messages, tool_choice: "required", parallel_tool_calls: false });
  const [call] = first.output.filter((item) => item.type === "function_call");
  Animal.parse(JSON.parse(call.arguments));
  const result = { type: "function_call_output", call_id: call.call_id, output: "done" };
  const second = await client.responses.create({ model, input: [...messages, ...first.output, result], max_output_tokens: 5 });
  assert(["completed", "incomplete"].includes(second.status));
});

const providers = {
  "responses": createOpenAI({ baseURL, apiKey })(model),
  "chat": createOpenAI({ baseURL, apiKey }).chat(model),
  "openai-compatible": createOpenAICompatible({ name: "here", baseURL, apiKey, supportsStructuredOutputs: true })(model),
};
for (const [name, provider] of Object.entries(providers)) {
  const ask = { model: provider, prompt: question, maxRetries: 0, maxOutputTokens: most };
  await check(`AI SDK: ${name}, stream`, async () => {
    let failure = null, written = "";
    const stream = streamText({ ...ask, maxOutputTokens: 20, onError: ({ error }) => { failure = error; } });
    for await (const piece of stream.textStream) written += piece;
    if (failure) throw failure;
    assert.equal(written, await stream.text);
    assert(["stop", "length"].includes(await stream.finishReason));
  });
  await check(`AI SDK: ${name}, object`, async () => {
    Animal.parse((await generateText({ ...ask, output: Output.object({ schema: Animal }) })).output);
  });
  await check(`AI SDK: ${name}, a second question`, async () => {
    const first = await generateText({ ...ask, maxOutputTokens: 20 });
    const conversation = [...messages, ...first.response.messages, { role: "user", content: "And another?" }];
    await generateText({ ...ask, prompt: undefined, messages: conversation, maxOutputTokens: 5 });
  });
  await check(`AI SDK: ${name}, two rounds of calls`, async () => {
    const adopt = tool({ description: "Adopt an animal", inputSchema: Animal, execute: async (animal) => `adopted ${animal.kind}` });
    const answer = await generateText({ ...ask, tools: { adopt }, toolChoice: "required", stopWhen: stepCountIs(2) });
    assert.equal(answer.steps.length, 2);
    assert.match(answer.steps[0].toolResults[0].output, /^adopted (cat|dog)$/);
  });
}
