// The inspector's panel, and what the chat shows of a recording: the passage that an answer was found in, and what a word read.
const panelBody = element.querySelector(".panel-body");
const panelNote = element.querySelector(".panel-note");
const saveButton = document.getElementById("dsa-save-view");
const INSPECTING = "deepseek-v32/inspecting"; // kept across a reload: `chosen`, or another text for none; empty while closed
let chosen = sessionStorage.getItem(INSPECTING); // run of the answer to show, until the next one is complete
let current = null; // {run, view}
let latest = null; // the latest value of the log
const GONE = "The recording of this answer is no longer there. Ask again to record a new one.";
const AWAY = "Can't reach the server. Try again.";
const whyNot = (answer) => (answer === null ? GONE : AWAY); // gradio gives undefined if a call has failed
let leaving = false; // the page goes back in its history, because the panel was closed by its button
const headers = new Map(); // promises, by run
const articles = () => document.querySelectorAll(".messages > .message");

const opened = () => document.body.classList.contains("dsa-inspecting");

function toggle(open) {
  document.body.classList.toggle("dsa-inspecting", open);
  document.getElementById("dsa-inspect").setAttribute("aria-pressed", open);
  sessionStorage.setItem(INSPECTING, open ? chosen || "open" : "");
  if (!open) {
    chosen = "";
    clearShades();
  }
  // The browser's Back closes it.
  if (open && !(history.state || {}).inspecting) history.pushState({ inspecting: true }, "");
  if (!open && (history.state || {}).inspecting && !leaving) {
    leaving = true;
    history.back();
  }
  if (open) follow(latest);
}

window.addEventListener("popstate", () => {
  const isOwn = leaving;
  leaving = false;
  if (opened() && isOwn) history.pushState({ inspecting: true }, ""); // it was opened again meanwhile
  else if (opened() && !(history.state || {}).inspecting) toggle(false);
});

function say(text) {
  panelNote.textContent = text;
  panelNote.hidden = !text;
}

function headerOf(run) {
  if (!headers.has(run)) headers.set(run, server.header(run).then((header) => {
    if (header === undefined) headers.delete(run);
    return header && !header.recorded ? null : header;
  }));
  return headers.get(run);
}

const messageOf = (run) => latest.conversation.messages.findIndex((message) => message.run === run);

// (first, after the last) token → ranges of the chat; none if the answer is not in the conversation that is shown.
function mapOf(run, header) {
  const index = messageOf(run);
  return index < 0 ? () => [] : chatMap(header, latest.conversation.messages.slice(0, index), articles());
}

function showPassage(run, header, passage, scroll) {
  const ranges = mapOf(run, header)(...passage);
  if (scroll && ranges.length) {
    if (innerWidth <= 800 && opened()) toggle(false);
    scrollToRange(ranges[0]);
  }
  shade([[], [], [], ranges]);
}

async function load(run) {
  const header = await headerOf(run);
  if (run !== chosen || messageOf(run) < 0 || (current && current.run === run)) return;
  if (!header) {
    drop();
    return say(whyNot(header));
  }
  const source = {
    header,
    selection: (index) => server.selection([run, index]),
    totals: () => server.totals(run),
    mass: () => server.mass(run),
    replay: (change, onProgress) => replay(run, change, onProgress),
    pad: () => tell("retry", { index: messageOf(run), pad: true }),
    show: (passage) => showPassage(run, header, passage, true),
    shade: (word) => (word && word.passage && opened() ? showPassage(run, header, word.passage, false) : clearShades()),
  };
  const box = make("div");
  panelBody.replaceChildren(box);
  saveButton.hidden = false;
  current = { run, view: mountInspector(box, source) };
  mark();
}

// The answer that the panel shows is marked in the chat.
function mark() {
  const index = current ? messageOf(current.run) : -1;
  articles().forEach((article, i) => article.classList.toggle("inspected", i === index && opened()));
}

// While the server computes, its progress is asked for from time to time.
async function replay(run, change, onProgress) {
  const ticket = crypto.getRandomValues(new Uint32Array(3)).join("-");
  let timer = 0;
  const look = async () => {
    const share = await server.progress(ticket);
    if (!timer) return;
    if (share) onProgress(share);
    timer = setTimeout(look, 400);
  };
  timer = setTimeout(look, 400);
  const other = await server.replay({ run, ticket, change });
  timer = clearTimeout(timer);
  return other;
}

function follow(value, ended = false) {
  latest = value;
  if (!opened() || !value) return mark();
  const { messages } = value.conversation;
  const newest = messages.filter((message) => message.role === "assistant").pop();
  const run = !ended && messageOf(chosen) >= 0 ? chosen : (!value.running && newest && newest.run) || "";
  if (messages.length) sessionStorage.setItem(INSPECTING, (chosen = run) || "open");
  if (value.running) say(run ? "Below is an earlier answer. The next one is being written …" : "The answer is being written …");
  else if (run) say("");
  else say(newest ? "This answer was not recorded." : "Ask something, then see here what was read to answer it.");
  if (run) return load(run).then(mark);
  drop();
  mark();
}

function drop() {
  current = null;
  panelBody.replaceChildren();
  saveButton.hidden = true;
}

async function saveView() {
  const page = current && (await server.report(current.run));
  if (!page) return say(whyNot(page));
  download("answer.html", "text/html", page);
}

// A word of an answer under the pointer: what was read just before writing it is shaded in the chat.
let hovers = 0;
let hovered = null; // [run, token]
let hoverTimer = 0;
const selections = new Map(); // by run and token
async function hover(event) {
  const body = event.target.closest && event.target.closest(".answer .body");
  const index = body ? [...articles()].indexOf(body.closest(".message")) : -1;
  const run = index >= 0 && latest && (latest.conversation.messages[index] || {}).run;
  const hover = ++hovers;
  const header = run && !latest.running ? await headerOf(run) : null;
  if (hover !== hovers) return;
  const token = header ? tokenAt(header, body, event.clientX, event.clientY) : null;
  const word = token === null ? null : header.words.find(({ tokens }) => tokens[0] <= token && token < tokens[1]);
  const place = word ? `${run} ${word.tokens[0]}` : null;
  if (place === hovered) return;
  hovered = place;
  clearTimeout(hoverTimer);
  if (!place) return current && opened() ? null : clearShades();
  hoverTimer = setTimeout(async () => {
    const at = word.token ?? word.tokens[0];
    const data = selections.get(place) || (await server.selection([run, at]));
    if (data) selections.set(place, data);
    if (hovered === place && data) shadeSelection(run, header, data);
  }, 120);
}

function shadeSelection(run, header, data) {
  const find = mapOf(run, header);
  const layers = readLayers(data, false);
  const strengths = new Float32Array(header.prompt_tokens);
  for (const layer of layers) for (let s = 1; s < header.prompt_tokens; s++) if (layer.counts[s]) strengths[s] += layer.strengths[s] + 0.02;
  const peak = strengths.reduce((most, each) => Math.max(most, each), 1e-6);
  const levels = [[], [], [], []];
  const level = (s) => (strengths[s] ? Math.min(3, Math.floor((4 * strengths[s]) / peak)) : -1);
  for (let s = 0; s < header.prompt_tokens; ) {
    let end = s + 1;
    while (end < header.prompt_tokens && level(end) === level(s)) end++;
    if (level(s) >= 0) levels[level(s)].push(...find(s, end));
    s = end;
  }
  shade(levels);
}

document.addEventListener("mousemove", hover);
document.addEventListener("click", (event) => event.target.closest(".answer .body") && hover(event));
on("shown", ({ value, ended }) => follow(value, ended));
on("theme", () => current && current.view.redraw());
on("inspect", ({ index }) => {
  chosen = latest.conversation.messages[index].run;
  if (opened()) follow(latest);
  else toggle(true);
});
let passageOf = null; // the run whose passage was asked for last
on("passage", async ({ index }) => {
  const run = (passageOf = latest.conversation.messages[index].run);
  const header = await headerOf(run);
  if (!header) tell("notice", whyNot(header));
  else if (run === passageOf) showPassage(run, header, header.story.passage, true);
});
document.getElementById("dsa-inspect").addEventListener("click", () => toggle(!opened()));
document.getElementById("dsa-inspect-close").addEventListener("click", () => toggle(false));
saveButton.addEventListener("click", saveView);
toggle(Boolean(sessionStorage.getItem(INSPECTING)));
tell("who");
