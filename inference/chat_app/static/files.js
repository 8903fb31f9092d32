// Text files that are dropped on the page or chosen. The browser reads them and sends their text with the question; no file is uploaded.
const MAX_BYTES = 4e6;
const row = element.querySelector(".files");

function draw() {
  const files = props.value;
  row.replaceChildren(
    ...files.map((file, index) => {
      const remove = button("", "×", "", () => set(files.filter((_, i) => i !== index)));
      remove.setAttribute("aria-label", "Remove " + file.name);
      return nest("span", "file", fileLabel(file), remove);
    }),
  );
}

function set(files) {
  props.value = files;
  draw();
  keep();
}

// Adds a file, or returns why not. The server counts its tokens when it can, and until then they are 0.
async function add(file) {
  if (file.size > MAX_BYTES) return `${file.name} is too big: at most ${MAX_BYTES / 1e6} MB of text.`;
  if (!file.size) return `${file.name} is empty.`;
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "\0";
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    // It is no text.
  }
  if (text.includes("\0")) return `I can only read text files. Copy the text out of ${file.name} and paste it.`;
  set([...props.value, { name: file.name, text, tokens: 0 }]);
  count(file.name, text);
}

async function count(name, text) {
  const { tokens, room } = (await server.count_tokens(text)) || {};
  const index = props.value.findIndex((file) => file.name === name && file.text === text && !file.tokens);
  if (!tokens || index < 0) return;
  if (tokens <= room) return set(props.value.with(index, { name, text, tokens }));
  set(props.value.toSpliced(index, 1));
  tell("notice", `${name} has ${grouped(tokens)} tokens; the model reads at most ${grouped(room)}.`);
}

// The server has taken a question with these files.
on("taken", (sent) => set(props.value.filter(({ name, text }) => !sent.some((file) => file.name === name && file.text === text))));

async function addAll(files) {
  for (const file of files) {
    const problem = await add(file);
    if (problem) tell("notice", problem);
  }
}

// The files of an unsent message come back after a reload.
const FILES = "deepseek-v32/files";
function keep() {
  try {
    sessionStorage.setItem(FILES, JSON.stringify(props.value));
  } catch (error) {
    sessionStorage.removeItem(FILES); // too big for the browser's storage
  }
}
const before = JSON.parse(sessionStorage.getItem(FILES)) || [];
if (before.length) props.value = before;
document.getElementById("dsa-attach").addEventListener("click", () => document.getElementById("dsa-attach-file").click());
document.getElementById("dsa-attach-file").addEventListener("change", async (event) => {
  await addAll(event.target.files);
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
  addAll(event.dataTransfer.files);
});
draw();
