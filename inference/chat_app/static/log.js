// The conversation. Only the parts that changed are updated, so that a growing answer neither flickers nor loses a selection.
const messagesBox = element.querySelector(".messages");
const scroller = document.getElementById("dsa-log");
const nodes = [];
let shown = props.value; // the value that the page shows
let saveTimer = 0;

function action(name, title, run) {
  const made = button("action", name, title, run);
  made.dataset.action = name.toLowerCase();
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    // Browsers give the clipboard to secure pages only; the older way works on every page.
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  notify("Copied");
}

on("who", () => tell("shown", { value: shown }));

// Keep the newest answer in view when the column gets narrower, for example when the inspector opens. The start page begins at its top.
let pinned = true;
function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
  pinned = true;
}
const isAtEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
let lastTop = 0;
scroller.addEventListener("scroll", () => {
  pinned = isAtEnd() || (pinned && scroller.scrollTop >= lastTop); // only someone who scrolls up leaves the end
  lastTop = scroller.scrollTop;
});
const stayAtEnd = new ResizeObserver(() => pinned && nodes.length && toEnd());
for (const box of [scroller, messagesBox]) stayAtEnd.observe(box);

// ended: this is the end of an answer that the page has waited for.
function show(value, ended = false) {
  const atEnd = isAtEnd();
  const grown = value.conversation.messages.length > shown.conversation.messages.length;
  const other = shown.conversation.id !== value.conversation.id;
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
  document.body.classList.toggle("dsa-running", asked.has(value.conversation.id));
  document.body.classList.toggle("dsa-empty", !messages.length);
  document.getElementById("dsa-title").textContent = value.conversation.title || "New chat";
  if (!messages.length && other) scroller.scrollTop = 0;
  else if (messages.length && (atEnd || grown || other)) toEnd();
  showMeter(value.meter);
  // Screen readers hear an answer once, when it is complete.
  if (ended) document.getElementById("dsa-announce").textContent = "The model said: " + messages[messages.length - 1].content;
  tell("shown", { value, ended });
}

function showMeter(meter) {
  const figure = (name, value, title) => Object.assign(nest("span", "figure", make("b", "", value), make("span", "", name)), { title });
  document.getElementById("dsa-meter").replaceChildren(
    figure("context", `${grouped(meter.context)} / ${grouped(meter.most_context)}`, "tokens of this conversation, and how many fit"),
    figure("pages", `${grouped(meter.pages + meter.cached_pages)} / ${grouped(meter.most_pages)}`, `pages of 64 tokens, of all conversations together: ${grouped(meter.pages)} in use, ${grouped(meter.cached_pages)} kept for reuse`),
  );
}
