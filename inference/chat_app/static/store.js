// The conversations of this browser, each in an entry of its own, so that two tabs never overwrite each other's.
const CONVERSATION = "deepseek-v32/conversation/";
const CURRENT = "deepseek-v32/current";

const store = {
  save(conversation) {
    if (!conversation.messages.length) return;
    try {
      localStorage.setItem(CONVERSATION + conversation.id, JSON.stringify({ saved: Date.now(), conversation }));
    } catch (error) {
      notify("This browser's storage is full: the conversation is not kept across a reload. Export it, or delete old ones.");
    }
  },
  load(id) {
    try {
      return JSON.parse(localStorage.getItem(CONVERSATION + id)).conversation;
    } catch (error) {
      return null;
    }
  },
  remove(id) {
    localStorage.removeItem(CONVERSATION + id);
  },
  list() {
    const entries = [];
    for (let i = 0; i < localStorage.length; i++) {
      const key = localStorage.key(i);
      if (!key.startsWith(CONVERSATION)) continue;
      try {
        const { saved, conversation } = JSON.parse(localStorage.getItem(key));
        entries.push({ id: conversation.id, title: conversation.title, saved });
      } catch (error) {
        localStorage.removeItem(key);
      }
    }
    return entries.sort((a, b) => b.saved - a.saved);
  },
  // Id of the conversation that this tab shows; it survives a reload and ends with the tab.
  get current() {
    return sessionStorage.getItem(CURRENT);
  },
  set current(id) {
    sessionStorage.setItem(CURRENT, id);
  },
};

let notifyTimer = 0;
document.addEventListener("dsa:notice", (event) => notify(event.detail));
function notify(text) {
  let box = document.getElementById("dsa-notice");
  if (!box) {
    box = document.createElement("div");
    box.id = "dsa-notice";
    box.setAttribute("role", "status");
    document.body.append(box);
  }
  box.textContent = text;
  box.classList.add("shown");
  clearTimeout(notifyTimer);
  notifyTimer = setTimeout(() => box.classList.remove("shown"), 5000);
}
