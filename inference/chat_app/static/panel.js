// The inspector's panel: it opens, closes and follows the answers. Answers are recorded while it is open.
const panelBody = element.querySelector(".panel-body");
const panelNote = element.querySelector(".panel-note");
let current = null; // {run, view}
let latest = null; // the latest value of the log

function opened() {
  return document.body.classList.contains("dsa-inspecting");
}

function toggle(open) {
  document.body.classList.toggle("dsa-inspecting", open);
  document.getElementById("dsa-inspect").setAttribute("aria-pressed", open);
  props.value = { open };
  if (open) follow(latest);
}

function say(text, button, run) {
  panelNote.replaceChildren(text);
  if (button) {
    const element = document.createElement("button");
    element.type = "button";
    element.textContent = button;
    element.addEventListener("click", run);
    panelNote.append(element);
  }
  panelNote.hidden = !text;
}

async function load(run) {
  if (current && current.run === run) return;
  const header = await server.header(run);
  if (!header || !header.recorded) {
    current = null;
    panelBody.replaceChildren();
    offer("The recording of this answer is no longer there. ");
    return;
  }
  say("");
  const source = {
    header,
    selection: (index) => server.selection([run, index]),
    totals: () => server.totals(run),
    mass: () => server.mass(run),
    replay: (change, onProgress) => replay(run, change, onProgress),
  };
  const box = document.createElement("div");
  panelBody.replaceChildren(box);
  current = { run, view: mountInspector(box, source) };
}

// While the server computes, its progress is asked for from time to time.
async function replay(run, change, onProgress) {
  const ticket = crypto.getRandomValues(new Uint32Array(3)).join("-");
  const timer = setInterval(async () => {
    const share = await server.progress(ticket);
    if (share) onProgress(share);
  }, 400);
  try {
    return await server.replay({ run, ticket, change });
  } finally {
    clearInterval(timer);
  }
}

function offer(text) {
  const messages = latest ? latest.conversation.messages : [];
  const index = messages.length - 1;
  const last = messages[index];
  if (!last || last.role !== "assistant") return say(text + "Ask something: while the inspector is open, answers are recorded.");
  const seed = (last.numbers || {}).seed;
  say(text + "Answers are recorded while the inspector is open. ", "Answer again with the same seed", () =>
    document.dispatchEvent(new CustomEvent("dsa:retry", { detail: { index, seed } })));
}

function follow(value) {
  latest = value;
  if (!opened() || !value) return;
  const last = value.conversation.messages.filter((message) => message.role === "assistant").pop();
  if (value.running) {
    if (!current) say("Recording the answer…");
    return;
  }
  if (last && last.run) load(last.run);
  else {
    current = null;
    panelBody.replaceChildren();
    offer("");
  }
}

document.addEventListener("dsa:shown", (event) => follow(event.detail));
document.addEventListener("dsa:theme", () => current && current.view.redraw());
document.addEventListener("dsa:inspect", (event) => {
  if (!opened()) toggle(true);
  load(event.detail.run);
});
document.getElementById("dsa-inspect").addEventListener("click", () => toggle(!opened()));
document.getElementById("dsa-inspect-close").addEventListener("click", () => toggle(false));
toggle(false);
document.dispatchEvent(new CustomEvent("dsa:who"));
