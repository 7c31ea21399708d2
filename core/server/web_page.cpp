// The built-in chat page. Self-contained: no other file, no network but this server.
#include "server/app.h"

namespace turbo::server {

const char* const kLoadingPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>turbo</title>
<style>body{font:16px/1.5 system-ui,sans-serif;display:grid;place-items:center;height:100vh;margin:0;color:#444;background:#fafaf8}
@media (prefers-color-scheme:dark){body{color:#bbb;background:#191a1c}}</style></head>
<body><p>Loading the model&hellip;</p>
<script>setInterval(async()=>{try{if((await fetch('health')).ok)location.reload()}catch{}},1000)</script></body></html>
)html";

const char* const kWebPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>turbo</title>
<style>
:root{--bg:#fafaf8;--fg:#22252a;--dim:#777;--line:#dcdcd6;--user:#e8eef7;--accent:#2f6db5}
@media (prefers-color-scheme:dark){:root{--bg:#191a1c;--fg:#e3e3df;--dim:#8d8f94;--line:#35373b;--user:#26313f;--accent:#7fb0e6}}
*{box-sizing:border-box}
body{margin:0;height:100vh;display:flex;flex-direction:column;font:16px/1.55 system-ui,sans-serif;background:var(--bg);color:var(--fg)}
header,form{padding:.7rem max(1rem,calc(50vw - 24rem));display:flex;gap:.7rem;align-items:center}
header{border-bottom:1px solid var(--line);font-size:.9rem;color:var(--dim)}
header b{color:var(--fg)}header span{flex:1;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
main{flex:1;overflow-y:auto;padding:1rem max(1rem,calc(50vw - 24rem))}
.m{white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 1rem}
.user{background:var(--user);padding:.5rem .8rem;border-radius:.6rem;margin-left:15%}
.think,.note{color:var(--dim);font-size:.9rem}.note{margin-top:.3rem}
form{border-top:1px solid var(--line);align-items:flex-end}
textarea{flex:1;resize:none;height:3.2rem;max-height:40vh;font:inherit;color:inherit;background:transparent;border:1px solid var(--line);border-radius:.5rem;padding:.5rem}
button{font:inherit;color:var(--accent);background:transparent;border:1px solid var(--line);border-radius:.5rem;padding:.4rem .9rem;cursor:pointer}
input{width:5rem;font:inherit;color:inherit;background:transparent;border:1px solid var(--line);border-radius:.4rem;padding:.1rem .3rem}
</style>
</head>
<body>
<header><b>turbo</b><span id="model"></span><label>temperature <input id="temperature" type="number" min="0" max="2" step="0.1" placeholder="auto"></label><button id="clear" type="button">New chat</button></header>
<main id="log" aria-live="polite"></main>
<form id="form"><textarea id="text" placeholder="Message (Enter sends, Shift+Enter breaks the line)" autofocus></textarea><button id="send">Send</button></form>
<script>
'use strict';
const $ = id => document.getElementById(id);
let messages = [], running = null, key = sessionStorage.getItem('turbo_key') || '';
const headers = () => key ? {'content-type': 'application/json', authorization: 'Bearer ' + key} : {'content-type': 'application/json'};

function add(kind, text) {
  const element = document.createElement('div');
  element.className = kind;
  element.textContent = text;
  $('log').append(element);
  return element;
}
function follow() {
  const log = $('log');
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}
async function call(path, options = {}) {
  for (;;) {
    const response = await fetch(path, {...options, headers: headers()});
    if (response.status !== 401) return response;
    key = prompt('This server asks for an API key') || '';
    if (!key) return response;
    sessionStorage.setItem('turbo_key', key);
  }
}
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const line = text.slice(0, end);
      if (!line.startsWith('data: ')) continue;
      if (line === 'data: [DONE]') return;
      yield JSON.parse(line.slice(6));
    }
  }
}
async function ask(text) {
  messages.push({role: 'user', content: text});
  add('m user', text);
  const box = add('m', ''), think = document.createElement('div'), body = document.createElement('div');
  think.className = 'think';
  box.append(think, body);
  follow();
  running = new AbortController();
  $('send').textContent = 'Stop';
  const request = {messages, stream: true, stream_options: {include_usage: true}, turbo: {timings: true}};
  if ($('temperature').value !== '') request.temperature = Number($('temperature').value);
  let answer = '', note = '';
  try {
    const response = await call('v1/chat/completions', {method: 'POST', body: JSON.stringify(request), signal: running.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      const delta = chunk.choices[0] && chunk.choices[0].delta || {};
      if (delta.reasoning_content) think.textContent += delta.reasoning_content;
      if (delta.content) body.textContent = answer += delta.content;
      if (chunk.usage) {
        note = chunk.usage.completion_tokens + ' tokens';
        if (chunk.timings && chunk.timings.predicted_per_second) note += ', ' + chunk.timings.predicted_per_second.toFixed(1) + ' per second';
      }
      follow();
    }
  } catch (error) {
    note = error.name === 'AbortError' ? 'stopped' : error.message;
  }
  messages.push({role: 'assistant', content: answer});
  if (note) { const line = document.createElement('div'); line.className = 'note'; line.textContent = note; box.append(line); }
  running = null;
  $('send').textContent = 'Send';
  follow();
}
$('form').addEventListener('submit', event => {
  event.preventDefault();
  if (running) return running.abort();
  const text = $('text').value.trim();
  if (!text) return;
  $('text').value = '';
  ask(text);
});
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) $('form').requestSubmit(); }
});
$('clear').addEventListener('click', () => { if (running) running.abort(); messages = []; $('log').replaceChildren(); $('text').focus(); });
call('v1/models').then(r => r.json()).then(list => { $('model').textContent = list.data ? list.data[0].id : ''; }).catch(() => {});
</script>
</body>
</html>
)html";

}  // namespace turbo::server
