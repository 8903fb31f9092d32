// The turns of a conversation: a question with its branches, and an answer with what it read.
const LONG_TEXT = 1500; // characters; a longer question is shown folded
const SHORT_PROMPT = 256; // tokens; reading a longer one takes long enough to show it
const THINK = /Turn thinking on(?: for the next one)?\.\s*$/; // the end of the demo's answer to a question that needs two facts

function fileNode(file) {
  return nest("details", "file", make("summary", "", fileLabel(file)), make("pre", "file-text", file.text));
}

function userNode(index) {
  const box = make("article", "message user");
  const bubble = make("div", "bubble");
  const actions = make("div", "actions");
  const branches = make("span", "branches");
  actions.append(
    branches,
    action("Edit", "Change this question and ask again from here", () => isBusy() || edit(index).focus()),
    action("Copy", "Copy this question", () => copy(shown.conversation.messages[index].content)),
  );
  box.append(make("span", "hidden-name", "You said:"), bubble, actions);
  let last = null;
  let id = null;
  return {
    box,
    update(message) {
      // The server has taken the changed question, or another branch or conversation is shown.
      if (id !== message.id) {
        closeEdit(box);
        if (sessionStorage.getItem(editKey(message)) !== null) edit(index);
      }
      id = message.id;
      const count = (message.branches || []).length + 1;
      const signature = JSON.stringify([message.content, message.files, count, message.branch]);
      if (signature === last) return;
      last = signature;
      branches.hidden = count === 1;
      const step = (by, name, title) => {
        const made = button("action step", name, title, () => isBusy() || open(withBranch(shown.conversation, index, by)));
        made.setAttribute("aria-label", title);
        return made;
      };
      branches.replaceChildren(step(-1, "‹", "The branch before this one"), `${(message.branch || 0) + 1}/${count}`, step(1, "›", "The next branch"));
      const text = make("div", "plain content", message.content);
      const parts = (message.files || []).map(fileNode);
      if (message.content.length > LONG_TEXT) {
        text.classList.add("folded");
        // The question stands below a pasted text, in the last paragraph, and stays visible.
        const tail = make("div", "tail", message.content.trimEnd().split(/\n+/).pop().slice(-LONG_TEXT / 4));
        const all = `Show all ${grouped(message.content.length)} characters`;
        const more = button("more", all, "", () => {
          const folded = text.classList.toggle("folded");
          tail.hidden = !folded;
          more.setAttribute("aria-expanded", String(!folded));
          more.textContent = folded ? all : "Show less";
        });
        more.setAttribute("aria-expanded", "false");
        parts.push(text, more, tail);
      } else parts.push(text);
      bubble.replaceChildren(...parts);
    },
  };
}

function answerNode(index) {
  const box = make("article", "message answer");
  const summary = make("summary", "");
  const thoughtText = make("div", "prose-text");
  const thought = nest("details", "thought", summary, thoughtText);
  const calls = make("div", "calls");
  const body = make("div", "prose-text body");
  const problem = make("div", "problem");
  problem.setAttribute("role", "alert");
  const read = make("div", "read");
  const foot = make("div", "foot");
  const numbers = make("span", "numbers");
  const figures = make("span", "figures");
  const details = nest("details", "details", make("summary", "", "Details"), figures);
  const inspect = action("Inspect", "See where this answer was found", () => tell("inspect", { index }));
  const think = action("Think first, then answer", "Turn thinking on and ask again", () => {
    const box = document.querySelector("#dsa-thinking input");
    if (!box.checked) box.click();
    askAgain({ index, thinking: true });
  });
  think.dataset.action = "think";
  foot.append(
    think,
    action("Copy", "Copy this answer", () => copy(shown.conversation.messages[index].content)),
    action("Retry", "Answer again", () => askAgain({ index })),
    inspect,
    details,
    numbers,
  );
  const reading = make("progress", "reading");
  reading.setAttribute("aria-label", "How much of the conversation is read");
  box.append(make("span", "hidden-name", "The model said:"), thought, calls, body, problem, reading, read, foot);
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
      set("calls", JSON.stringify(message.calls || []), () => calls.replaceChildren(...(message.calls || []).map(callNode)));
      const time = (message.numbers || {}).thinking_seconds;
      summary.textContent = thinking ? "Thinking…" : time === undefined ? "Thought" : `Thought for ${seconds(time)}`;
      if (thinking && !folded) thought.open = true;
      if (!thinking && !folded && message.reasoning) {
        folded = true; // only once, so that a thought which the user opens again stays open
        thought.open = false;
      }
      box.classList.toggle("waiting", growing && !message.content && !message.reasoning);
      problem.hidden = !message.error;
      problem.textContent = message.error || "";
      inspect.hidden = growing || !message.run;
      think.hidden = growing || Boolean(message.reasoning) || !THINK.test(message.content);
      numbers.textContent = describe(message, growing);
      const rates = growing ? "" : describeRates(message);
      details.hidden = !rates;
      figures.textContent = rates;
      set("read", JSON.stringify([growing, message.numbers, message.error, message.run]), () => drawRead(read, message, index, growing));
      const n = message.numbers || {};
      reading.hidden = !growing || n.time_to_first_token !== undefined || !(n.prompt_tokens > SHORT_PROMPT);
      // Before the first chunk is read there is no share to show, only that something is going on.
      if (n.read_tokens) Object.assign(reading, { max: n.prompt_tokens, value: Math.min(n.read_tokens, n.prompt_tokens) });
      else reading.removeAttribute("value");
    },
  };
}

function callNode({ name, arguments: given, result }) {
  return nest("div", "call", make("b", "", name), ` ${given} → ${result}`);
}

// The line under an answer: how much it read, and where it found what it says.
function drawRead(box, message, index, growing) {
  const n = message.numbers || {};
  box.hidden = growing || message.error || n.kept_share === undefined;
  if (box.hidden) return;
  const { index_topk: topk } = shown.meter;
  if (n.prompt_tokens + n.completion_tokens <= topk) {
    const more = button("link-button", "Add a page of text", "Put some 600 tokens of other text before the question, and ask again", () => askAgain({ index, pad: true }));
    more.dataset.action = "pad";
    return box.replaceChildren(`Shorter than ${grouped(topk)} tokens, so everything was read. `, more);
  }
  const parts = [`Read ${n.kept_share >= 0.995 ? "all" : percent(n.kept_share)} of ${grouped(n.prompt_tokens)} tokens`];
  if (!message.run) return box.replaceChildren(parts[0] + " · not recorded");
  if (n.found_back) {
    parts.push(" · ", button("link-button found", `found ${grouped(n.found_back)} tokens back`, "Show the passage in the chat", () => tell("passage", { index })));
  }
  if (n.recorded_tokens < n.completion_tokens) parts.push(` · recorded up to token ${grouped(n.recorded_tokens)}`);
  box.replaceChildren(...parts);
}

const seconds = (number) => (number < 10 ? number.toFixed(number < 1 ? 2 : 1) : Math.round(number)) + " s";
const ENDINGS = {
  abort: "stopped",
  length: "stopped at the length limit",
  loop: "stopped, because it repeated itself",
  lost: "the server stopped before this answer was complete",
};

function describe(message, growing) {
  const n = message.numbers || {};
  if (!growing) return ENDINGS[message.finish] || "";
  if (n.time_to_first_token !== undefined || !n.prompt_tokens) return "";
  const left = n.seconds_left ? `, about ${n.seconds_left < 1 ? 1 : Math.round(n.seconds_left)} s left` : "";
  return `reading ${n.read_tokens ? grouped(n.read_tokens) + " of " : ""}${grouped(n.prompt_tokens)} tokens${left}`;
}

function describeRates(message) {
  const n = message.numbers || {};
  const parts = [];
  if (n.time_to_first_token !== undefined) parts.push(`first token ${seconds(n.time_to_first_token)}`);
  if (n.tokens_per_second !== undefined) parts.push(`${n.tokens_per_second} tokens/s`);
  if (n.drafted_tokens) parts.push(`${n.drafted_tokens} guessed`);
  if (n.cached_tokens) parts.push(`${grouped(n.cached_tokens)} of ${grouped(n.prompt_tokens)} cached`);
  return parts.join(" · ");
}

function edit(index) {
  const box = nodes[index].box;
  const question = shown.conversation.messages[index];
  const key = editKey(question);
  closeEdit(box);
  const bubble = box.querySelector(".bubble");
  const area = make("textarea", "edit");
  area.setAttribute("aria-label", "The question");
  area.value = sessionStorage.getItem(key) ?? question.content;
  area.addEventListener("input", () => sessionStorage.setItem(key, area.value));
  const buttons = make("div", "pair");
  const done = () => {
    sessionStorage.removeItem(key);
    closeEdit(box);
    box.querySelector('[data-action="edit"]').focus();
  };
  const form = make("div", "bubble form");
  const ask = action("Ask", "Ask this instead; what followed becomes another branch", () => {
    if (area.value.trim() || question.files?.length) askAgain({ index, text: area.value });
  });
  ask.classList.add("primary");
  buttons.append(action("Cancel", "Leave the question as it was", done), ask);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask.click();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      done();
    }
  });
  form.append(area, buttons);
  bubble.before(form);
  box.classList.add("editing");
  area.style.height = Math.min(360, area.scrollHeight + 4) + "px";
  return area;
}

function closeEdit(box) {
  box.querySelector(".form")?.remove();
  box.classList.remove("editing");
}
