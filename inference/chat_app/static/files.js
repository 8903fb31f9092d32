// Text files that are dropped on the page or chosen. The browser reads them and sends their text with the question; no file is uploaded.
const MAX_BYTES = 4e6;
const row = element.querySelector(".files");

function draw() {
  const files = props.value || [];
  row.replaceChildren(
    ...files.map((file, index) => {
      const chip = document.createElement("span");
      chip.className = "file";
      chip.textContent = `${file.name} · ${file.tokens.toLocaleString("en-US")} tokens`;
      const remove = document.createElement("button");
      remove.type = "button";
      remove.textContent = "×";
      remove.setAttribute("aria-label", "Remove " + file.name);
      remove.addEventListener("click", () => set(files.filter((_, i) => i !== index)));
      chip.append(remove);
      return chip;
    }),
  );
}

function set(files) {
  props.value = files;
  draw();
  keep();
}

function say(text) {
  document.dispatchEvent(new CustomEvent("dsa:notice", { detail: text }));
}

async function add(list) {
  for (const file of list) {
    if (file.size > MAX_BYTES) {
      say(`${file.name} is too big: at most ${MAX_BYTES / 1e6} MB of text.`);
      continue;
    }
    if (!file.size) {
      say(`${file.name} is empty.`);
      continue;
    }
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text;
    try {
      if (bytes.includes(0)) throw new Error();
      text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch (error) {
      say(`I can only read text files. Copy the text out of ${file.name} and paste it.`);
      continue;
    }
    const { tokens, room } = await server.count_tokens(text);
    if (tokens > room) {
      say(`${file.name} has ${tokens.toLocaleString("en-US")} tokens; the model reads at most ${room.toLocaleString("en-US")}.`);
      continue;
    }
    set([...(props.value || []), { name: file.name, text, tokens }]);
  }
}

// The files of an unsent message come back after a reload.
const FILES = "deepseek-v32/files";
function keep() {
  try {
    sessionStorage.setItem(FILES, JSON.stringify(props.value || []));
  } catch (error) {
    sessionStorage.removeItem(FILES); // too big for the browser's storage
  }
}
const before = JSON.parse(sessionStorage.getItem(FILES)) || [];
if (before.length) props.value = before;
watch("value", () => {
  draw();
  keep();
});
document.getElementById("dsa-attach").addEventListener("click", () => document.getElementById("dsa-attach-file").click());
document.getElementById("dsa-attach-file").addEventListener("change", async (event) => {
  await add(event.target.files);
  event.target.value = "";
});
const holdsFiles = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
window.addEventListener("dragover", (event) => {
  if (!holdsFiles(event)) return;
  event.preventDefault();
  document.body.classList.add("dsa-dropping");
});
window.addEventListener("dragleave", (event) => !event.relatedTarget && document.body.classList.remove("dsa-dropping"));
window.addEventListener("drop", (event) => {
  document.body.classList.remove("dsa-dropping");
  if (!holdsFiles(event)) return;
  event.preventDefault();
  add(event.dataTransfer.files);
});
draw();
