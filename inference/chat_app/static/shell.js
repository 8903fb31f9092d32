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
const asked = new Map(); // conversations whose answer this tab awaits, by id: {run, text, files, tells}; without run until it is shown

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
  const entry = asked.get(id) || {};
  // gradio sends the last view twice.
  const isShown = ticket || (id === store.current && (running || asked.has(id)));
  if (running && !entry.run) {
    if (asked.has(id)) take(entry);
    else if (ticket) trigger("resume", { run: running });
    if (wanted && wanted.id === id) trigger("stop", { run: running });
  }
  if (running) asked.set(id, Object.assign(entry, { run: running }));
  else if (!ticket || entry.run) asked.delete(id);
  if (isShown) {
    store.current = id;
    restoring = false;
    newest++;
    show(value);
    keep(conversation, !running);
    const last = conversation.messages.length - 1;
    if (entry.tells && !running && conversation.messages[last].run) tell("inspect", { index: last });
  } else {
    props.value = shown;
    store.save(conversation);
    drawList();
  }
  if (wanted && !asked.has(wanted.id)) {
    open(wanted);
    wanted = null;
  }
});

// A question that the server has taken leaves its box. What was typed or added since then stays.
function take({ text, files }) {
  if (text) setControls(([now, ...others]) => [now.startsWith(text) ? now.slice(text.length).trimStart() : now, ...others]);
  if (files) tell("taken", files);
}

// What the server refused or could not do changes nothing that is shown.
function fail(text) {
  props.value = shown;
  for (const [id, { run }] of asked) if (!run) asked.delete(id);
  if (restoring) setControls(([now, , ...others]) => [now, systemBefore, ...others]);
  store.current = shown.conversation.id;
  restoring = false;
  wanted = null;
  notify(text);
}
on("failed", () => {
  fail("The server could not do this. Try again.");
  if (shown.running) setTimeout(() => shown.running && trigger("resume", { run: shown.running }), 1000);
});

// Notes that something is asked. What the server still has to send of other tabs' turns would leave it out.
function note(id, entry) {
  asked.set(id, entry);
  newest++;
  lookTimer = setTimeout(look, 600); // whether it has arrived
}
on("sent", ([{ conversation }, text, files]) => (text.trim() || files.length) && note(conversation.id, { text, files }));

// Says why nothing can be asked now, if so.
function isBusy() {
  const reason = !away.hidden ? away.textContent : restoring ? "The conversation is still being loaded." : asked.has(store.current) && "The answer is still being written. Stop it first, or wait.";
  if (reason) notify(reason);
  return reason;
}

// Ask again from an earlier turn; what followed stays as a branch, and can be brought back at once.
function askAgain(detail) {
  if (isBusy()) return;
  const before = structuredClone(shown.conversation);
  const dropped = before.messages.length - detail.index > (before.messages[detail.index].role === "user" ? 2 : 1);
  note(before.id, {});
  trigger("retry", detail);
  if (!dropped) return;
  notify("What followed is kept as another branch.", () => {
    const entry = asked.get(before.id);
    if (!entry) return open(before);
    wanted = before;
    if (entry.run) trigger("stop", entry);
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

function drawList() {
  byId("dsa-list").replaceChildren(
    ...store.list().map(({ id, title }) => {
      const remove = button("remove", "×", "Delete this conversation", () => clear(id));
      remove.setAttribute("aria-label", "Delete " + title);
      return nest("div", id === store.current ? "entry current" : "entry", button("choose", title || "Untitled", title, () => open(store.load(id))), remove);
    }),
  );
}

function clear(id) {
  if (asked.has(id)) return notify("Stop the answer first.");
  if (unsaved && unsaved.id === id) unsaved = null;
  const removed = store.load(id);
  const wasShown = id === store.current;
  localStorage.removeItem(CONVERSATION + id);
  if (wasShown) startNew();
  drawList();
  if (!removed) return;
  notify(`Deleted “${(removed.title || "Untitled").slice(0, 30)}”.`, () => {
    store.save(removed);
    if (wasShown) open(removed);
    drawList();
  });
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
    note(store.current, { text: textBox().value, tells: index === 0 });
    trigger("example", { index, id: store.current });
  });
  card.append(make("b", "", title), make("span", "", hint), make("small", "", brings));
  welcome.append(card);
});

// Whether the server answers. While it is away nothing can be sent; when it is back, the page loads itself again and shows
// everything as it was, because gradio's connection does not survive.
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
  byId("dsa-send").disabled = !away.hidden;
  lookTimer = setTimeout(look, away.hidden ? LOOK_EVERY : 1000);
}
if (sessionStorage.getItem("deepseek-v32/back")) notify("The server is back.");
sessionStorage.removeItem("deepseek-v32/back");

// Before gradio sees it.
function holdBack(event) {
  const sends = event.type === "click" ? event.target.closest("#dsa-send") : event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.closest("#dsa-text");
  if (!sends || !isBusy()) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}
for (const type of ["click", "keydown"]) window.addEventListener(type, holdBack, true);
look();

const stop = () => shown.running && trigger("stop", { run: shown.running });
byId("dsa-stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => event.key === "Escape" && !event.defaultPrevented && stop());

const theme = localStorage.getItem("deepseek-v32/theme");
if (theme) setTheme(theme === "dark", false);
const kept = store.current && store.load(store.current);
startNew();
open(kept, Boolean(draft));
// Answers that grew in other conversations before a reload; an answer has the id of its run.
for (const { id } of store.list()) {
  const { finish, id: run } = store.load(id).messages?.at(-1) || {};
  if (!finish && run && !(kept && kept.id === id)) trigger("resume", { run });
}
document.body.classList.add("dsa-ready");
focusText();
