// The frame of the conversation: switching between conversations, their list, export and import, theme, drawers and examples.
const byId = (id) => document.getElementById(id);

let unsaved = null; // is saved after half a second at the latest, and when the page is left

function saveNow() {
  clearTimeout(saveTimer);
  saveTimer = 0;
  if (unsaved) store.save(unsaved);
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
  if (value && value.notice) {
    props.value = shown;
    store.current = shown.conversation.id;
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
  store.current = id;
  show(value);
  keep(value.conversation, finished || !value.running);
});

const leftRunning = new Set(); // conversations whose answer still grows while the page shows another one

function leave() {
  if (shown && shown.running) leftRunning.add(shown.conversation.id);
}

function open(conversation) {
  if (!conversation) return;
  leave();
  store.current = conversation.id; // the server checks the conversation and sends it back under this id
  leftRunning.delete(conversation.id);
  trigger("restore", { conversation });
  closeDrawers();
}

function startNew() {
  leave();
  const id = "c" + crypto.getRandomValues(new Uint32Array(3)).join("").slice(0, 24);
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
      const row = node("div", "entry" + (id === store.current ? " current" : ""));
      const choose = node("button", "choose", title || "Untitled", title);
      choose.addEventListener("click", () => open(store.load(id)));
      const remove = node("button", "remove", "×", "Delete this conversation");
      remove.setAttribute("aria-label", "Delete " + title);
      remove.addEventListener("click", () => clear(id));
      row.append(choose, remove);
      return row;
    }),
  );
}

function clear(id) {
  if (id === store.current && shown.running) return notify("Stop the answer first.");
  if (unsaved && unsaved.id === id) unsaved = null;
  store.remove(id);
  if (id === store.current) startNew();
  drawList();
}

function exportConversation() {
  const { conversation } = shown;
  const link = node("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(conversation, null, 1)], { type: "application/json" }));
  link.download = (conversation.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) + ".json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function importConversation(file) {
  if (!file) return;
  if (file.size > 20e6) return notify("That file is too big for a conversation.");
  try {
    const conversation = JSON.parse(await file.text());
    if (!conversation || !Array.isArray(conversation.messages)) throw new Error();
    // A new id: an import never replaces a conversation of this browser.
    conversation.id = "c" + crypto.getRandomValues(new Uint32Array(3)).join("").slice(0, 24);
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
  document.dispatchEvent(new CustomEvent("dsa:theme"));
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
document.addEventListener("dsa:retry", (event) => trigger("retry", event.detail));
window.addEventListener("storage", drawList);

const welcome = element.querySelector(".examples");
(props.examples || []).forEach(({ title, hint }, index) => {
  const card = node("button", "example");
  card.append(node("b", "", title), node("span", "", hint));
  card.addEventListener("click", () => {
    leave();
    store.current = null; // the server gives the example's conversation its id
    trigger("example", { index });
  });
  welcome.append(card);
});

// Whether the server answers. A growing answer is lost with it, and ends as if it was stopped; what has come is kept.
const away = node("div", "");
away.id = "dsa-away";
away.hidden = true;
away.setAttribute("role", "alert");
away.textContent = "Can't reach the server. Reconnecting …";
document.body.append(away);
const LOOK_EVERY = 4000; // milliseconds
let known = null; // of the server's process: another one does not know this tab's answers

async function look() {
  let found = null;
  try {
    // While an answer grows it matters whether the server is still the same one.
    const place = shown && shown.running ? "config" : "gradio_api/startup-events";
    const answer = await fetch(place, { cache: "no-store", signal: AbortSignal.timeout(8000) });
    found = !answer.ok ? null : place === "config" ? (await answer.json()).app_id : known || "there";
  } catch (error) {
    // It is away.
  }
  const gone = found === null || (known && known !== "there" && found !== known);
  if (gone && shown && shown.running) endLostAnswer();
  if (found !== null && !away.hidden) notify("The server is back.");
  away.hidden = found !== null;
  known = found === null ? known : found;
  setTimeout(look, away.hidden ? LOOK_EVERY : 1000);
}

function endLostAnswer() {
  const messages = shown.conversation.messages.map((message, i) =>
    i === shown.conversation.messages.length - 1 && message.role === "assistant" ? { ...message, finish: "abort" } : message);
  const value = { ...shown, conversation: { ...shown.conversation, messages }, running: null };
  props.value = value;
  show(value);
  keep(value.conversation, true);
}
look();

const theme = localStorage.getItem("deepseek-v32/theme");
if (theme) setTheme(theme === "dark", false);
show(props.value);
const kept = store.current && store.load(store.current);
if (kept) trigger("restore", { conversation: kept });
else startNew();
drawList();
document.body.classList.add("dsa-ready");
focusText();
