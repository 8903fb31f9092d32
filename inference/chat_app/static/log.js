// The conversation. Only the parts that changed are updated, so that a growing answer neither flickers nor loses a selection.
const messagesBox = element.querySelector(".messages");
const scroller = document.getElementById("dsa-log");
const LONG_TEXT = 1500; // characters; a longer question is shown folded
const SHORT_PROMPT = 256; // tokens; reading a longer one takes long enough to show it
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

function userNode(index) {
  const box = node("article", "message user");
  const bubble = node("div", "bubble");
  const actions = node("div", "actions");
  actions.append(
    action("Edit", "Change this question and ask again from here", () => edit(index)),
    action("Copy", "Copy this question", () => copy(shown.conversation.messages[index].content)),
  );
  box.append(bubble, actions);
  let last = null;
  return {
    box,
    update(message) {
      const signature = JSON.stringify([message.content, message.files]);
      if (signature === last) return;
      last = signature;
      const text = node("div", "plain", message.content);
      const parts = (message.files || []).map((file) => node("span", "file", `${file.name} · ${thousands(file.tokens || 0)} tokens`));
      if (message.content.length > LONG_TEXT) {
        text.classList.add("folded");
        // The question stands below a pasted text, in the last paragraph, and stays visible.
        const tail = node("div", "tail", message.content.trimEnd().split(/\n+/).pop().slice(-LONG_TEXT / 4));
        const more = node("button", "more", `Show all ${thousands(message.content.length)} characters`);
        more.addEventListener("click", () => {
          const folded = text.classList.toggle("folded");
          tail.hidden = !folded;
          more.setAttribute("aria-expanded", String(!folded));
          more.textContent = folded ? `Show all ${thousands(message.content.length)} characters` : "Show less";
        });
        more.setAttribute("aria-expanded", "false");
        parts.push(text, more, tail);
      } else parts.push(text);
      bubble.replaceChildren(...parts);
    },
  };
}

function answerNode(index) {
  const box = node("article", "message answer");
  const thought = node("details", "thought");
  const summary = node("summary", "");
  const thoughtText = node("div", "prose-text");
  thought.append(summary, thoughtText);
  const body = node("div", "prose-text body");
  const problem = node("div", "problem");
  problem.setAttribute("role", "alert");
  const foot = node("div", "foot");
  const numbers = node("span", "numbers");
  const inspect = action("Inspect", "Show what the model read for each token of this answer", () => openInspector(index));
  foot.append(
    action("Copy", "Copy this answer", () => copy(shown.conversation.messages[index].content)),
    action("Retry", "Answer again", () => trigger("retry", { index })),
    inspect,
    numbers,
  );
  const reading = node("progress", "reading");
  reading.setAttribute("aria-label", "How much of the conversation is read");
  box.append(thought, body, problem, reading, foot);
  let folded = false;
  const last = {};
  const set = (key, value, apply) => last[key] !== value && apply((last[key] = value));
  return {
    box,
    update(message, html, growing) {
      const [content, reasoning] = html || ["", ""];
      const thinking = growing && !message.content && Boolean(message.reasoning);
      thought.hidden = !message.reasoning;
      set("reasoning", reasoning, (value) => (thoughtText.innerHTML = value));
      set("content", content, (value) => (body.innerHTML = value));
      const time = (message.numbers || {}).thinking_seconds;
      summary.textContent = thinking ? "Thinking…" : time === undefined ? "Thought" : `Thought for ${seconds(time)}`;
      if (thinking && !folded) thought.open = true;
      if (!thinking && !folded && message.reasoning) {
        folded = true; // only once, so that a thought which the user opens again stays open
        thought.open = false;
      }
      box.classList.toggle("growing", growing);
      box.classList.toggle("waiting", growing && !message.content && !message.reasoning);
      box.dataset.state = growing ? "growing" : message.finish || "done";
      problem.hidden = !message.error;
      problem.textContent = message.error || "";
      inspect.hidden = !message.run;
      numbers.textContent = describe(message, growing);
      const n = message.numbers || {};
      reading.hidden = !growing || n.time_to_first_token !== undefined || !(n.prompt_tokens > SHORT_PROMPT);
      // Before the first chunk is read there is no share to show, only that something is going on.
      if (n.read_tokens) Object.assign(reading, { max: n.prompt_tokens, value: Math.min(n.read_tokens, n.prompt_tokens) });
      else reading.removeAttribute("value");
    },
  };
}

function describe(message, growing) {
  const n = message.numbers || {};
  const parts = [];
  if (growing && n.time_to_first_token === undefined) return n.prompt_tokens ? `reading ${n.read_tokens ? thousands(n.read_tokens) + " of " : ""}${thousands(n.prompt_tokens)} tokens` : "";
  if (n.time_to_first_token !== undefined) parts.push(`first token ${seconds(n.time_to_first_token)}`);
  if (n.tokens_per_second !== undefined) parts.push(`${n.tokens_per_second} tokens/s`);
  if (n.drafted_tokens) parts.push(`${n.drafted_tokens} guessed`);
  if (n.cached_tokens) parts.push(`${thousands(n.cached_tokens)} of ${thousands(n.prompt_tokens)} cached`);
  if (!growing && message.finish === "abort") parts.push("stopped");
  if (!growing && message.finish === "length") parts.push("stopped at the length limit");
  return parts.join(" · ");
}

function edit(index) {
  if (shown.running) return;
  const box = nodes[index].box;
  const bubble = box.querySelector(".bubble");
  const area = node("textarea", "edit");
  area.value = shown.conversation.messages[index].content;
  const buttons = node("div", "pair");
  const done = () => {
    form.replaceWith(bubble);
    box.classList.remove("editing");
  };
  const ask = action("Ask", "Ask this instead; what followed is replaced", () => {
    done();
    trigger("retry", { index, text: area.value });
  });
  const form = node("div", "bubble");
  buttons.append(action("Cancel", "Leave the question as it was", done), ask);
  form.append(area, buttons);
  bubble.replaceWith(form);
  box.classList.add("editing");
  area.style.height = Math.min(360, area.scrollHeight + 4) + "px";
  area.focus();
}

function openInspector(index) {
  document.dispatchEvent(new CustomEvent("dsa:inspect", { detail: { run: shown.conversation.messages[index].run } }));
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
new ResizeObserver(() => pinned && nodes.length && toEnd()).observe(scroller);

function show(value) {
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
  document.dispatchEvent(new CustomEvent("dsa:shown", { detail: value }));
}

function showMeter(meter) {
  const last = [...shown.conversation.messages].reverse().find((message) => message.numbers);
  const n = (last && last.numbers) || {};
  const figure = (name, value, title) => {
    const box = node("span", "figure", undefined, title);
    box.append(node("b", "", value), node("span", "", name));
    return box;
  };
  const or = (value, text) => (value === undefined ? "–" : text(value));
  document.getElementById("dsa-meter").replaceChildren(
    figure("first token", or(n.time_to_first_token, seconds), "time from the question to the first token of the answer"),
    figure("tokens/s", or(n.tokens_per_second, String), "speed of the answer after its first token"),
    figure("cached", or(n.cached_tokens, thousands), "prompt tokens taken from the cache of earlier turns instead of computed"),
    figure("context", `${thousands(meter.context)} / ${thousands(meter.most_context)}`, "tokens of this conversation, and how many fit"),
    figure("pages", `${thousands(meter.pages + meter.cached_pages)} / ${thousands(meter.most_pages)}`, `pages of 64 tokens, of all conversations together: ${thousands(meter.pages)} in use, ${thousands(meter.cached_pages)} kept for reuse`),
  );
}
