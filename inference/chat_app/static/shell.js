// The frame of the conversation: switching between conversations, their list, export and import, theme, drawers and examples.
const byId = (id) => document.getElementById(id);
const textBox = () => document.querySelector("#dsa-text textarea");

let unsaved = null; // is saved after half a second at the latest, and when the page is left

function saveNow() {
  clearTimeout(saveTimer);
  saveTimer = 0;
  merge(unsaved && store.save(unsaved));
  unsaved = null;
  drawList();
}

function keep(conversation, now) {
  if (unsaved && unsaved.id !== conversation.id) saveNow();
  unsaved = conversation;
  if (now) saveNow();
  else if (!saveTimer) saveTimer = setTimeout(saveNow, 500);
}
window.addEventListener("pagehide", () => {
  saveNow();
  // gradio tells no change after it has lost the server.
  const [, system = ""] = JSON.parse(sessionStorage.getItem(DRAFT)) || [];
  sessionStorage.setItem(DRAFT, JSON.stringify([textBox().value, system]));
});

// The server answers when it can. Meanwhile another conversation may be opened, something else asked, or text typed.
let newest = 0; // number of the latest restore that is still of use
let restoring = false; // a conversation is on its way, so nothing can be asked
let systemBefore = ""; // the system prompt before it was opened
let imported = null; // id of the latest import, which is nowhere else until it has come back
let wanted = null; // a conversation to show when its present answer has stopped
const asked = new Map(); // conversations whose answer this tab awaits, by id: {run, text, files, tells, seen}; `seen` once the server replies
const givenUp = new Set(); // runs that were stopped without a reply
const deleted = new Set(); // conversations that were deleted here

watch("value", () => {
  const value = props.value;
  const { conversation, running, ticket, notice } = value;
  if (ticket && ticket !== newest) {
    props.value = shown;
    if (conversation && conversation.id === imported) store.save(conversation);
    return drawList();
  }
  if (notice) return fail(notice);
  const { id } = conversation;
  const run = running || conversation.messages.at(-1)?.id;
  if (running && givenUp.has(run)) {
    props.value = shown;
    return trigger("stop", { run });
  }
  const entry = asked.get(id) || { run: running };
  const isAwaited = entry.run === run; // gradio sends the last view twice, the second time perhaps after another question
  const isCurrent = ticket || id === store.current;
  const isShown = ticket || (isAwaited && (isCurrent || id === shown.conversation.id)); // though another one is on its way
  if (isAwaited && !entry.seen) {
    entry.seen = true;
    if (asked.has(id)) take(entry);
    else if (ticket) trigger("resume", { conversation });
    asked.set(id, entry);
    if (wanted && wanted.id === id) trigger("stop", { run });
  }
  if (!running && isAwaited) asked.delete(id);
  if (isShown) {
    if (isCurrent) {
      store.current = id;
      restoring = false;
      newest++;
    }
    show(value, isAwaited && !running);
    keep(conversation, !running);
    const last = conversation.messages.length - 1;
    if (entry.tells && !running && conversation.messages[last].run) tell("inspect", { index: last });
  } else {
    props.value = shown;
    if (!deleted.has(id)) store.save(conversation);
    drawList();
    if (!running && id === shown.conversation.id) keep(shown.conversation, true); // with what came late
  }
  if (wanted && !asked.has(wanted.id)) {
    open(wanted);
    wanted = null;
  }
});

// A question that the server has taken leaves its box. What was typed or added since then stays.
function take({ text, files, edited }) {
  if (text) setControls(([now, ...others]) => [now.startsWith(text) ? now.slice(text.length).trimStart() : now, ...others]);
  if (files) tell("taken", files);
  if (edited && sessionStorage.getItem(edited.key) === edited.text) sessionStorage.removeItem(edited.key);
}

// What the server refused or could not do changes nothing that is shown.
function fail(text) {
  for (const [id, { seen }] of asked) if (!seen) asked.delete(id);
  goBack(text);
}
function goBack(text) {
  props.value = shown;
  if (restoring) setControls(([now, , ...others]) => [now, systemBefore, ...others]);
  store.current = shown.conversation.id;
  restoring = false;
  newest++;
  wanted = null;
  show(shown);
  notify(text);
}
on("failed", () => {
  fail("The server could not do this. Try again.");
  saveNow();
  clearTimeout(resumeTimer);
  resumeTimer = setTimeout(resume, 1000);
});

// Takes up the answers that are not complete in the browser's storage, after a reload or a failure.
let resumeTimer = 0;
function resume() {
  for (const { id } of store.list()) {
    const conversation = store.load(id);
    const last = conversation.messages?.at(-1);
    if (last?.id && !last.finish && !(restoring && id === store.current)) trigger("resume", { conversation });
  }
}

// Notes that something is asked; returns the id of its run. Increasing `newest` makes the page ignore a pending restore, which
// would lack this question.
function note(id, entry) {
  const run = newId();
  asked.set(id, { run, ...entry });
  newest++;
  document.body.classList.add("dsa-running");
  lookTimer = setTimeout(look, 600); // whether it has arrived
  return run;
}
on("sent", (values) => {
  const [value, text, files] = values;
  if (text.trim() || files.length) values[0] = { ...value, run: note(value.conversation.id, { text, files }) };
});

// A reply may never come. Without one, the question is as it was before, and an answer that begins later is stopped. An answer
// that does not end is left as it is the second time.
function stop() {
  const entry = asked.get(store.current);
  if (restoring) return goBack("Not loaded.");
  if (!entry) return;
  trigger("stop", { run: entry.run });
  if (entry.seen && !entry.isStopped) return (entry.isStopped = true);
  givenUp.add(entry.run);
  asked.delete(store.current);
  if (shown.running) {
    const { messages } = shown.conversation;
    const ended = messages.with(-1, { ...messages.at(-1), finish: "abort" });
    shown = { ...shown, running: null, conversation: { ...shown.conversation, messages: ended } };
    keep(shown.conversation, true);
  }
  goBack("Stopped. The server has not replied.");
}

// Says why nothing can be asked now, if so.
function isBusy() {
  const reason = !away.hidden ? away.textContent : restoring ? "The conversation is still being loaded." : asked.has(store.current) && "The answer is still being written. Stop it first, or wait.";
  if (reason) notify(reason, restoring && stop);
  return reason;
}

// Ask again from an earlier turn; what followed stays as a branch, and can be brought back at once.
function askAgain(detail) {
  if (isBusy()) return;
  const before = structuredClone(shown.conversation);
  const dropped = before.messages.length - detail.index > (before.messages[detail.index].role === "user" ? 2 : 1);
  const edited = "text" in detail && { key: editKey(before.messages[detail.index]), text: detail.text };
  trigger("retry", { ...detail, run: note(before.id, { edited }) });
  if (!dropped) return;
  notify("What followed is kept as another branch.", () => {
    const entry = asked.get(before.id);
    if (!entry) return open(before);
    wanted = before;
    trigger("stop", { run: entry.run });
  });
}

// Another conversation brings its system prompt. After a reload the box has it already, changed perhaps.
function open(conversation, keepsSystem = conversation && conversation.id === shown.conversation.id) {
  if (!conversation) return;
  const isFirst = !restoring;
  setControls(([text, system, ...others]) => {
    if (isFirst) systemBefore = system;
    return [text, keepsSystem ? systemBefore : conversation.system || "", ...others];
  });
  store.current = conversation.id; // the server checks the conversation and sends it back under this id
  restoring = true;
  trigger("restore", { conversation, ticket: ++newest });
  closeDrawers();
}

// Another tab has added turns. Where this comes at a bad time, saving finds them again.
function merge(conversation) {
  if (conversation && conversation.id === shown.conversation.id && !restoring && !asked.has(conversation.id)) trigger("restore", { conversation, ticket: ++newest });
}

const newId = () => "c" + crypto.getRandomValues(new Uint32Array(3)).join("").slice(0, 24);

function startNew() {
  restoring = false;
  newest++;
  const id = newId();
  const conversation = { ...shown.conversation, id, title: "", messages: [] };
  const value = { conversation, html: [], running: null, meter: { ...shown.meter, context: 0 } };
  store.current = id;
  props.value = value;
  show(value);
  drawList();
  closeDrawers();
  focusText();
}

// Not on a phone, where it would open the keyboard.
function focusText() {
  if (innerWidth > 800) textBox()?.focus();
}

// Unless it is as before: a list that is drawn anew while an answer grows loses clicks and the focus.
let drawn = "";
function drawList() {
  const entries = store.list();
  const now = JSON.stringify([store.current, entries.map(({ id, title }) => [id, title])]);
  if (now === drawn) return;
  drawn = now;
  byId("dsa-list").replaceChildren(
    ...entries.map(({ id, title }) => {
      const remove = button("remove", "×", "Delete this conversation", () => clear(id));
      remove.setAttribute("aria-label", "Delete " + title);
      return nest("div", id === store.current ? "entry current" : "entry", button("choose", title || "Untitled", title, () => open(store.load(id))), remove);
    }),
  );
}

let restores = []; // of the deletions that the notice's Undo takes back
function clear(id) {
  if (asked.has(id)) return notify("Stop the answer first.");
  if (unsaved && unsaved.id === id) unsaved = null;
  const removed = store.load(id);
  const wasShown = id === store.current;
  localStorage.removeItem(CONVERSATION + id);
  deleted.add(id);
  if (wasShown) startNew();
  drawList();
  if (!removed) return;
  if (!notice.classList.contains("shown")) restores = [];
  restores.push(() => {
    deleted.delete(id);
    store.save(removed);
    if (wasShown) open(removed);
    drawList();
  });
  notify(`Deleted “${(removed.title || "Untitled").slice(0, 30)}”.`, () => restores.splice(0).forEach((restore) => restore()));
}

function exportConversation() {
  const { conversation } = shown;
  const name = (conversation.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40);
  download(`${name}.json`, "application/json", JSON.stringify(conversation, null, 1));
}

async function importConversation(file) {
  if (!file) return;
  if (file.size > 20e6) return notify("That file is too big for a conversation.");
  try {
    const conversation = JSON.parse(await file.text());
    if (!conversation || !Array.isArray(conversation.messages)) throw new Error();
    // A new id: an import never replaces a conversation of this browser.
    imported = conversation.id = newId();
    open(conversation);
  } catch (error) {
    notify("That file holds no conversation.");
  }
}

function closeDrawers() {
  document.body.classList.remove("dsa-menu-open");
}

function setTheme(dark, remember) {
  document.body.classList.toggle("dark", dark);
  if (remember) localStorage.setItem("deepseek-v32/theme", dark ? "dark" : "light");
  tell("theme");
}

byId("dsa-new").addEventListener("click", startNew);
byId("dsa-clear").addEventListener("click", () => clear(shown.conversation.id));
byId("dsa-export").addEventListener("click", exportConversation);
byId("dsa-import").addEventListener("click", () => byId("dsa-import-file").click());
byId("dsa-import-file").addEventListener("change", (event) => {
  importConversation(event.target.files[0]);
  event.target.value = "";
});
const slides = () => innerWidth <= 800 || (innerWidth <= 1100 && document.body.classList.contains("dsa-inspecting"));
byId("dsa-menu").addEventListener("click", () => document.body.classList.toggle(slides() ? "dsa-menu-open" : "dsa-side-closed"));
byId("dsa-main").addEventListener("click", (event) => !event.target.closest("#dsa-menu") && closeDrawers());
byId("dsa-theme").addEventListener("click", () => setTheme(!document.body.classList.contains("dark"), true));
on("retry", askAgain);
window.addEventListener("storage", (event) => {
  drawList();
  if (event.key === CONVERSATION + store.current && event.newValue) takeOver(store.load(store.current));
});

// Another tab has saved the conversation that this one shows: show its turns, too, once its answer is complete.
function takeOver(stored) {
  const last = stored && stored.messages[stored.messages.length - 1];
  if (!last || !last.finish || shown.conversation.id !== stored.id) return;
  const mine = structuredClone(shown.conversation);
  if (graft(mine.messages, 0, stored.messages, 0)) merge(mine);
}

// The draft belongs to the tab, settings to the browser; both come back after a reload. In the order of the page's components.
on("settings", ([text, system, ...settings]) => {
  // A question on its way that was replaced by another text is no longer in the box.
  for (const entry of asked.values()) if (!text.startsWith(entry.text)) entry.text = "";
  sessionStorage.setItem(DRAFT, JSON.stringify([text, system]));
  localStorage.setItem(SETTINGS, JSON.stringify(settings));
});

// Changes the controls, which gradio holds, without the server: change(values) → values. All changes of a moment are one event,
// because each event writes all controls.
const changes = [];
function setControls(change) {
  if (changes.push(change) === 1) trigger("controls");
}
on("controls", (values) => {
  while (changes.length) values.splice(0, values.length, ...changes.shift()(values));
});

const draft = JSON.parse(sessionStorage.getItem(DRAFT));
const settings = JSON.parse(localStorage.getItem(SETTINGS));
setControls((values) => {
  const [text, system, ...defaults] = values;
  const kept = [...(draft || [store.list().length ? "" : text, system]), ...(settings || defaults)];
  return values.map((value, i) => (kept[i] !== null && typeof kept[i] === typeof value ? kept[i] : value));
});

const welcome = element.querySelector(".examples");
(props.examples || []).forEach(({ title, hint, brings }, index) => {
  const card = button("example", "", "", () => {
    if (isBusy()) return;
    store.current = newId();
    // The first card ends with the inspector open on its story.
    trigger("example", { index, id: store.current, run: note(store.current, { text: textBox().value, tells: index === 0 }) });
  });
  card.append(make("b", "", title), make("span", "", hint), make("small", "", brings));
  welcome.append(card);
});

// Whether the server answers. While it is away nothing can be sent; when it is back, the page loads itself again and shows
// everything as it was, because gradio's connection does not survive. gradio itself may do that first.
const away = overlay("dsa-away", "alert");
away.textContent = "Can't reach the server. Reconnecting …";
away.hidden = true;
const LOOK_EVERY = 4000; // milliseconds
let known = null; // id of the server's process
let lookTimer = 0;

async function look() {
  clearTimeout(lookTimer);
  let found = null;
  try {
    const answer = await fetch("gradio_api/startup-events", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (answer.ok) found = answer.headers.get("x-process");
  } catch (error) {
    // It is away.
  }
  if (found !== null && (!away.hidden || (known && found !== known))) {
    saveNow();
    sessionStorage.setItem("deepseek-v32/back", "1");
    return location.reload();
  }
  known = found || known;
  away.hidden = found !== null;
  if (!away.hidden) sessionStorage.setItem("deepseek-v32/back", "1");
  byId("dsa-send").disabled = !away.hidden;
  lookTimer = setTimeout(look, away.hidden ? LOOK_EVERY : 1000);
}
if (sessionStorage.getItem("deepseek-v32/back")) notify("The server is back.");
sessionStorage.removeItem("deepseek-v32/back");

const isBlank = () => !textBox().value.trim() && !byId("dsa-files").querySelector(".file");

// Before gradio sees it.
function holdBack(event) {
  const sends = event.type === "click" ? event.target.closest("#dsa-send") : event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.closest("#dsa-text");
  if (!sends || (!isBlank() && !isBusy())) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}
for (const type of ["click", "keydown"]) window.addEventListener(type, holdBack, true);
look();

byId("dsa-stop").addEventListener("click", (event) => event.detail === 2 || stop()); // a double click on Send ends here
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  if (document.body.classList.contains("dsa-menu-open")) closeDrawers();
  else stop();
});

const theme = localStorage.getItem("deepseek-v32/theme");
if (theme) setTheme(theme === "dark", false);
const kept = store.current && store.load(store.current);
startNew();
open(kept, Boolean(draft));
resume();
document.body.classList.add("dsa-ready");
focusText();
