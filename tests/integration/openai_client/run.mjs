// The official OpenAI client against a running server: node run.mjs http://127.0.0.1:30000
// Prints one line per check and exits with 1 when any failed.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const base = process.argv[2];
if (!base) {
  console.error('usage: node run.mjs BASE_URL');
  process.exit(2);
}
const client = new OpenAI({baseURL: base + '/v1', apiKey: 'unused', maxRetries: 0, timeout: 120000});
const model = (await client.models.list()).data[0].id;
const messages = [{role: 'user', content: 'Tell me about the sea.'}];
const chat = {model, messages, max_tokens: 24, temperature: 0};
let failed = 0;

async function check(name, body) {
  try {
    await body();
    console.log('ok    ' + name);
  } catch (error) {
    failed += 1;
    console.log('FAIL  ' + name + '\n' + (error.stack ?? error));
  }
}

async function collect(stream) {
  const out = {text: '', finish: null, usage: null, chunks: 0, logprobs: []};
  for await (const chunk of stream) {
    out.chunks += 1;
    if (chunk.usage) out.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    out.text += choice.delta?.content ?? choice.text ?? '';
    if (choice.logprobs?.content) out.logprobs.push(...choice.logprobs.content);
    if (choice.finish_reason) out.finish = choice.finish_reason;
  }
  return out;
}

await check('models: list and retrieve', async () => {
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve('no/such'), OpenAI.NotFoundError);
});

await check('chat: whole', async () => {
  const answer = await client.chat.completions.create(chat);
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.model, model);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
  assert.ok(answer.usage.prompt_tokens > 0);
  assert.ok(answer.usage.completion_tokens <= 24);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

await check('chat: the same request gives the same answer', async () => {
  const [a, b] = await Promise.all([client.chat.completions.create(chat), client.chat.completions.create(chat)]);
  assert.equal(a.choices[0].message.content, b.choices[0].message.content);
  const seeded = {...chat, temperature: 1, seed: 11};
  const [c, d] = await Promise.all([client.chat.completions.create(seeded), client.chat.completions.create(seeded)]);
  assert.equal(c.choices[0].message.content, d.choices[0].message.content);
});

await check('chat: streamed equals whole, with usage', async () => {
  const whole = await client.chat.completions.create(chat);
  const stream = await collect(await client.chat.completions.create({...chat, stream: true, stream_options: {include_usage: true}}));
  assert.equal(stream.text, whole.choices[0].message.content);
  assert.equal(stream.finish, whole.choices[0].finish_reason);
  assert.equal(stream.usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(stream.chunks > 2);
});

await check('chat: the stream helper accepts the chunks', async () => {
  const stream = client.beta.chat.completions.stream({...chat, n: 2, temperature: 1, seed: 3});
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices.length, 2);
});

await check('chat: logprobs, whole and streamed', async () => {
  const request = {...chat, logprobs: true, top_logprobs: 3, max_tokens: 8};
  const whole = (await client.chat.completions.create(request)).choices[0];
  assert.ok(whole.logprobs.content.length > 0);
  for (const entry of whole.logprobs.content) {
    assert.ok(entry.logprob <= 0 && entry.logprob > -10000);
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.top_logprobs[0].token, entry.token, 'greedy takes the likeliest');
  }
  const streamed = await collect(await client.chat.completions.create({...request, stream: true}));
  assert.deepEqual(streamed.logprobs, whole.logprobs.content);
});

await check('chat: stop strings', async () => {
  const full = (await client.chat.completions.create(chat)).choices[0].message.content;
  const stop = full.slice(Math.floor(full.length / 2), Math.floor(full.length / 2) + 3);
  if (stop.length === 0) return;
  const cut = (await client.chat.completions.create({...chat, stop})).choices[0];
  assert.equal(cut.message.content, full.slice(0, full.indexOf(stop)));
  assert.equal(cut.finish_reason, 'stop');
  const streamed = await collect(await client.chat.completions.create({...chat, stop, stream: true}));
  assert.equal(streamed.text, cut.message.content);
});

await check('chat: several choices', async () => {
  const answer = await client.chat.completions.create({...chat, n: 3, temperature: 1, seed: 5, max_tokens: 6});
  assert.deepEqual(answer.choices.map(choice => choice.index), [0, 1, 2]);
});

await check('completions: whole and streamed', async () => {
  const request = {model, prompt: 'Once upon a time', max_tokens: 12, temperature: 0};
  const whole = await client.completions.create(request);
  assert.equal(whole.object, 'text_completion');
  const stream = await collect(await client.completions.create({...request, stream: true}));
  assert.equal(stream.text, whole.choices[0].text);
});

await check('completions: echo, logprobs, several prompts', async () => {
  const answer = await client.completions.create({model, prompt: ['One', 'Two'], echo: true, logprobs: 2, max_tokens: 2, temperature: 0});
  assert.equal(answer.choices.length, 2);
  assert.ok(answer.choices[1].text.startsWith('Two'));
  assert.equal(answer.choices[0].logprobs.token_logprobs[0], null);
  const scored = await client.completions.create({model, prompt: 'One two', echo: true, logprobs: 0, max_tokens: 0});
  assert.equal(scored.choices[0].text, 'One two');
});

await check('errors have the class, code and param that the client reads', async () => {
  const rejects = async (request, kind, code, param) => {
    const error = await client.chat.completions.create(request).then(() => assert.fail('accepted'), e => e);
    assert.ok(error instanceof kind, String(error));
    assert.equal(error.code, code);
    if (param !== undefined) assert.equal(error.param, param);
    assert.ok(error.request_id ?? error.headers);
  };
  await rejects({model, messages: []}, OpenAI.BadRequestError, 'out_of_range', 'messages');
  await rejects({...chat, temperature: 5}, OpenAI.BadRequestError, 'out_of_range', 'temperature');
  await rejects({...chat, stream: true, top_p: 'x'}, OpenAI.BadRequestError, 'invalid_type', 'top_p');
  await rejects({...chat, messages: [{role: 'user', content: 'word '.repeat(200000)}]}, OpenAI.BadRequestError, 'context_length_exceeded');
  await rejects({...chat, response_format: {type: 'json_object'}}, OpenAI.APIError, 'not_supported', 'response_format');
});

await check('an aborted stream leaves the server ready', async () => {
  const stream = await client.chat.completions.create({...chat, max_tokens: 2000, ignore_eos: true, stream: true});
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 3) stream.controller.abort();
  assert.ok(chunks >= 3);
  for (let i = 0; ; ++i) {
    const text = await (await fetch(base + '/metrics')).text();
    if (/^turbo_requests_running(\{\})? 0$/m.test(text)) break;
    assert.ok(i < 100, 'the request goes on after its client left');
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  await client.chat.completions.create({...chat, max_tokens: 2});
});

process.exit(failed ? 1 : 0);
