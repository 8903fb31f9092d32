// The conversation. Only the parts that changed are updated, so that a growing answer neither flickers nor loses a selection.
const messagesBox = element.querySelector(".messages");
const scroller = document.getElementById("dsa-log");
const nodes = [];
let shown = null; // the value that the page shows
let saveTimer = 0;

function node(tag, className, text, title) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (title) made.title = title;
  if (tag === "button") made.type = "button";
  return made;
}

const thousands = (number) => number.toLocaleString("en-US");
const share = (part) => (part >= 0.995 ? "all" : part >= 0.0995 ? `${(100 * part).toFixed(0)} %` : `${(100 * part).toFixed(1)} %`);
const seconds = (number) => (number < 10 ? number.toFixed(number < 1 ? 2 : 1) : Math.round(number)) + " s";

function action(name, title, run) {
  const button = node("button", "action", name, title);
  button.dataset.action = name.toLowerCase();
  button.addEventListener("click", run);
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    // Browsers give the clipboard to secure pages only; the older way works on every page.
    const area = node("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  notify("Copied");
}

document.addEventListener("dsa:who", () => shown && document.dispatchEvent(new CustomEvent("dsa:shown", { detail: shown })));

// Keep the newest answer in view when the column gets narrower, for example when the inspector opens. The start page begins at its top.
let pinned = true;
function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
  pinned = true;
}
scroller.addEventListener("scroll", () => {
  pinned = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
});
const stayAtEnd = new ResizeObserver(() => pinned && nodes.length && toEnd());
for (const box of [scroller, messagesBox]) stayAtEnd.observe(box);

function show(value) {
  const ended = shown && shown.running && !value.running && shown.conversation.id === value.conversation.id;
  const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  const grown = !shown || value.conversation.messages.length > shown.conversation.messages.length;
  const other = !shown || shown.conversation.id !== value.conversation.id;
  shown = value;
  const { messages } = value.conversation;
  if (other) nodes.splice(0).forEach((entry) => entry.box.remove());
  while (nodes.length > messages.length) nodes.pop().box.remove();
  messages.forEach((message, i) => {
    if (nodes[i] && nodes[i].role !== message.role) nodes.splice(i).forEach((entry) => entry.box.remove());
    if (!nodes[i]) {
      nodes[i] = { ...(message.role === "user" ? userNode(i) : answerNode(i)), role: message.role };
      messagesBox.append(nodes[i].box);
    }
    const growing = Boolean(value.running) && i === messages.length - 1;
    nodes[i].update(message, value.html[i], growing);
  });
  document.body.classList.toggle("dsa-running", Boolean(value.running));
  document.body.classList.toggle("dsa-empty", !messages.length);
  document.getElementById("dsa-title").textContent = value.conversation.title || "New chat";
  if (!messages.length && other) scroller.scrollTop = 0;
  else if (messages.length && (atEnd || grown || other)) toEnd();
  showMeter(value.meter);
  // Screen readers hear an answer once, when it is complete.
  if (ended) document.getElementById("dsa-announce").textContent = "The model said: " + messages[messages.length - 1].content;
  document.dispatchEvent(new CustomEvent("dsa:shown", { detail: value }));
}

function showMeter(meter) {
  const figure = (name, value, title) => {
    const box = node("span", "figure", undefined, title);
    box.append(node("b", "", value), node("span", "", name));
    return box;
  };
  document.getElementById("dsa-meter").replaceChildren(
    figure("context", `${thousands(meter.context)} / ${thousands(meter.most_context)}`, "tokens of this conversation, and how many fit"),
    figure("pages", `${thousands(meter.pages + meter.cached_pages)} / ${thousands(meter.most_pages)}`, `pages of 64 tokens, of all conversations together: ${thousands(meter.pages)} in use, ${thousands(meter.cached_pages)} kept for reuse`),
  );
}
