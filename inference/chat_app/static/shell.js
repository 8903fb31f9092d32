// The frame of the conversation: switching between conversations, their list, export and import, theme, drawers and examples.
const byId = (id) => document.getElementById(id);

let unsaved = null; // is saved after half a second at the latest, and when the page is left

function saveNow() {
  clearTimeout(saveTimer);
  saveTimer = 0;
  const merged = unsaved && store.save(unsaved);
  if (merged && merged.id === shown.conversation.id && !shown.running) trigger("restore", { conversation: merged });
  unsaved = null;
  drawList();
}

function keep(conversation, now) {
  if (unsaved && unsaved.id !== conversation.id) saveNow();
  unsaved = conversation;
  if (now) saveNow();
  else if (!saveTimer) saveTimer = setTimeout(saveNow, 500);
}
window.addEventListener("pagehide", saveNow);

// The server has sent a new value. It may belong to a conversation that this tab has left in the meantime.
watch("value", () => {
  const value = props.value;
  sentAt = 0;
  if (value && value.notice) {
    props.value = shown;
    store.current = shown.conversation.id;
    restoring = false;
    notify(value.notice);
    return;
  }
  if (!value || !value.conversation) return;
  const id = value.conversation.id;
  if (store.current && id !== store.current && value.running !== undefined && leftRunning.has(id)) {
    store.save(value.conversation);
    if (!value.running) leftRunning.delete(id);
    props.value = shown;
    drawList();
    return;
  }
  const finished = shown && shown.running && !value.running;
  const resumed = value.running && (!shown || !shown.running || shown.conversation.id !== id);
  store.current = id;
  show(value);
  keep(value.conversation, finished || !value.running);
  if (resumed && restoring) trigger("resume", { run: value.running });
  restoring = false;
  if (finished && wanted) {
    open(wanted);
    wanted = null;
  }
  if (finished && tells) {
    tells = false;
    const last = value.conversation.messages.length - 1;
    if (value.conversation.messages[last].run) tell("inspect", { index: last });
  }
});

let restoring = false; // the next value is a conversation from the browser's storage, whose answer may still grow on the server
let wanted = null; // a conversation to show when the present answer has stopped

// Ask again from an earlier turn; what followed stays as a branch, and can be brought back at once.
function askAgain(detail) {
  const before = structuredClone(shown.conversation);
  const dropped = before.messages.length - detail.index > (before.messages[detail.index].role === "user" ? 2 : 1);
  trigger("retry", detail);
  if (!dropped) return;
  notify("What followed is kept as another branch.", () => {
    if (!shown.running) return open(before);
    wanted = before;
    byId("dsa-stop").click();
  });
}

const leftRunning = new Set(); // conversations whose answer still grows while the page shows another one

function leave() {
  if (shown && shown.running) leftRunning.add(shown.conversation.id);
}

function open(conversation) {
  if (!conversation) return;
  leave();
  store.current = conversation.id; // the server checks the conversation and sends it back under this id
  leftRunning.delete(conversation.id);
  restoring = true;
  trigger("restore", { conversation });
  closeDrawers();
}

const newId = () => "c" + crypto.getRandomValues(new Uint32Array(3)).join("").slice(0, 24);

function startNew() {
  leave();
  restoring = false;
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
  if (innerWidth > 800) document.querySelector("#dsa-text textarea")?.focus();
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
  if (id === store.current && shown.running) return notify("Stop the answer first.");
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
    conversation.id = newId();
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
  if (!last || !last.finish || shown.running || shown.conversation.id !== stored.id) return;
  const mine = structuredClone(shown.conversation);
  if (graft(mine.messages, 0, stored.messages, 0)) trigger("restore", { conversation: mine });
}

// The draft belongs to the tab, settings to the browser; both come back after a reload. In the order of the page's components.
on("settings", ([text, system, ...settings]) => {
  sessionStorage.setItem(DRAFT, JSON.stringify([text, system]));
  localStorage.setItem(SETTINGS, JSON.stringify(settings));
});

const draft = JSON.parse(sessionStorage.getItem(DRAFT));
const settings = JSON.parse(localStorage.getItem(SETTINGS));
on("kept", (detail) => {
  const [text, system, ...defaults] = detail.values;
  const kept = [...(draft || [store.list().length ? "" : text, system]), ...(settings || defaults)];
  detail.values = detail.values.map((value, i) => (kept[i] !== null && typeof kept[i] === typeof value ? kept[i] : value));
});

const welcome = element.querySelector(".examples");
let tells = false; // the first card ends with the inspector open on its story
(props.examples || []).forEach(({ title, hint, brings }, index) => {
  const card = button("example", "", "", () => {
    leave();
    store.current = null; // the server gives the example's conversation its id
    tells = index === 0;
    trigger("example", { index });
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

// Before gradio sees them: events that need the server.
const SENDS = "#dsa-send, #dsa-stop, .example, .message [data-action]:not([data-action=copy], [data-action=edit], [data-action=cancel])";
let sentAt = 0; // when a message was sent that the server has not shown yet; a second press is a slip
function holdBack(event) {
  const sends = event.type === "click" ? event.target.closest(SENDS) : event.key === "Enter" && !event.shiftKey && event.target.closest("#dsa-text");
  if (!sends) return;
  const isBusy = event.type === "keydown" && shown && shown.running;
  const isSecond = Date.now() - sentAt < 800;
  if (isBusy) notify("The answer is still being written. Stop it first, or wait.");
  else if (restoring) notify("The conversation is still being loaded.");
  else if (away.hidden && !isSecond) {
    if (event.type === "keydown" || event.target.closest("#dsa-send")) sentAt = Date.now();
    lookTimer = setTimeout(look, 600); // whether it has arrived
    return;
  }
  event.preventDefault();
  event.stopImmediatePropagation();
}
for (const type of ["click", "keydown"]) window.addEventListener(type, holdBack, true);
look();

// Escape stops an answer.
document.addEventListener("keydown", (event) => event.key === "Escape" && !event.defaultPrevented && shown.running && byId("dsa-stop").click());

const theme = localStorage.getItem("deepseek-v32/theme");
if (theme) setTheme(theme === "dark", false);
show(props.value);
const kept = store.current && store.load(store.current);
trigger("settings");
if (kept) {
  restoring = true;
  trigger("restore", { conversation: kept, loading: Boolean(draft) });
} else startNew();
drawList();
document.body.classList.add("dsa-ready");
focusText();
