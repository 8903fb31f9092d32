// Makes the elements of the inspector and the chat, and writes numbers.
function make(tag, className, text, title) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (title) element.title = title;
  if (tag === "button") element.type = "button";
  return element;
}

function nest(tag, className, ...children) {
  const element = make(tag, className);
  element.append(...children);
  return element;
}

function button(className, text, title, run) {
  const made = make("button", className, text, title);
  made.addEventListener("click", run);
  return made;
}

// Buttons of which one is chosen, as [key, text, title] each. Returns their box, with a method mark(key).
function choices(className, label, options, value, onPick) {
  const buttons = options.map(([key, text, title]) => [key, button("dsa-layer", text, title, () => {
    box.mark(key);
    onPick(key);
  })]);
  const box = nest("div", className, ...buttons.map(([, each]) => each));
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  box.mark = (chosen) => buttons.forEach(([key, each]) => press(each, key === chosen));
  box.mark(value);
  return box;
}

function press(element, isOn) {
  element.classList.toggle("dsa-picked", isOn);
  element.setAttribute("aria-pressed", String(isOn));
}

// rows: lists of texts; the first row and the first text of each are headings.
function grid(rows) {
  const table = make("table");
  rows.forEach((cells, i) => table.insertRow().append(...cells.map((text, j) => {
    const cell = make(i && j ? "td" : "th", "", text);
    if (!i || !j) cell.scope = i ? "row" : "col";
    return cell;
  })));
  return table;
}

// Offers a text as a file.
function download(name, type, text) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const percent = (share) => (share >= 0.0995 ? `${Math.round(share * 100)} %` : `${(share * 100).toFixed(1)} %`);
const grouped = (number) => number.toLocaleString("en-US");
