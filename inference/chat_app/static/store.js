// The conversations of this browser, each in an entry of its own. Two tabs may show the same one: saving keeps the turns of both.
const CONVERSATION = "deepseek-v32/conversation/";
const CURRENT = "deepseek-v32/current";
const SETTINGS = "deepseek-v32/settings";
const DRAFT = "deepseek-v32/draft";

const identity = (message) => message.id || message.role + ":" + message.content;
const editKey = (question) => "deepseek-v32/edit/" + identity(question); // text of an open edit form, which belongs to the tab

const withoutBranches = ([first, ...rest]) => [{ ...first, branches: undefined, branch: undefined }, ...rest];

// Adds to `ours`, from place `at` on, the turns that only `theirs` has: at the end, or else as a branch. Returns whether there were any.
function graft(ours, at, theirs, from) {
  if (from >= theirs.length) return false;
  if (at >= ours.length) return ours.push(...theirs.slice(from)) > 0;
  const first = ours[at];
  let added = false;
  for (const tail of [theirs.slice(from), ...(theirs[from].branches || [])].map(withoutBranches)) {
    const same = identity(tail[0]) === identity(first) ? null : (first.branches || []).find((branch) => identity(branch[0]) === identity(tail[0]));
    if (same === null) {
      const ends = tail[0].finish && tail[0].finish !== first.finish && (!first.finish || first.finish === "lost");
      if (ends) added = Boolean(Object.assign(first, tail[0]));
      added = graft(ours, at + 1, tail, 1) || added;
    } else if (same) added = graft(same, 1, tail, 1) || added;
    else {
      first.branches = [...(first.branches || []), tail];
      added = true;
    }
  }
  return added;
}

// The conversation with another branch of the turn at `index`.
function withBranch(conversation, index, step) {
  const { messages } = conversation;
  const { branches = [], branch = 0 } = messages[index];
  const all = [...branches];
  all.splice(branch, 0, withoutBranches(messages.slice(index)));
  const place = (branch + step + all.length) % all.length;
  const [[first, ...rest]] = all.splice(place, 1);
  return { ...conversation, messages: [...messages.slice(0, index), { ...first, branches: all, branch: place }, ...rest] };
}

const store = {
  // If another tab has added turns, returns the conversation with them. The given one is gradio's and is not changed.
  save(given) {
    if (!given.messages.length) return null;
    const stored = this.load(given.id);
    const conversation = structuredClone(given);
    const added = Boolean(stored) && graft(conversation.messages, 0, stored.messages, 0);
    const change = added ? conversation : null;
    if (JSON.stringify(stored) === JSON.stringify(conversation)) return change; // opened again: it keeps its place in the list
    try {
      localStorage.setItem(CONVERSATION + conversation.id, JSON.stringify({ saved: Date.now(), conversation }));
    } catch (error) {
      notify("This browser's storage is full: the conversation is not kept across a reload. Export it, or delete old ones.");
    }
    return change;
  },
  load(id) {
    try {
      return JSON.parse(localStorage.getItem(CONVERSATION + id)).conversation;
    } catch (error) {
      return null;
    }
  },
  list() {
    const entry = (key) => {
      try {
        const { saved, conversation } = JSON.parse(localStorage.getItem(key));
        return { id: conversation.id, title: conversation.title, saved };
      } catch (error) {
        localStorage.removeItem(key);
      }
    };
    return Object.keys(localStorage).filter((key) => key.startsWith(CONVERSATION)).map(entry).filter(Boolean).sort((a, b) => b.saved - a.saved);
  },
  // Id of the conversation that this tab shows; it survives a reload and ends with the tab.
  get current() {
    return sessionStorage.getItem(CURRENT);
  },
  set current(id) {
    sessionStorage.setItem(CURRENT, id);
  },
};

function overlay(id, role) {
  const box = make("div");
  box.id = id;
  box.setAttribute("role", role);
  document.body.append(box);
  return box;
}

const notice = overlay("dsa-notice", "status");
let notifyTimer = 0;
on("notice", notify);
// With `undo`, a function, the notice stays for ten seconds and has a button.
function notify(text, undo) {
  const hide = () => notice.classList.remove("shown");
  notice.replaceChildren(text);
  if (undo) {
    notice.append(button("", "Undo", "", () => {
      hide();
      undo();
    }));
  }
  notice.classList.add("shown");
  clearTimeout(notifyTimer);
  notifyTimer = setTimeout(hide, undo ? 10000 : 5000);
}
