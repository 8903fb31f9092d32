// The inspector's three steps: the answer in words, the sentence that was read to write one of them, and the answer without it.
const withoutThought = (text) => text.split("</think>").pop().replace(/<[/]?think>|<｜[^<>]*｜>/g, "").trim();

// Returns {box, draw(word)}: `word` is an entry of header.words, or null. onPick(word) is called when one is chosen.
function mountSteps(source, control, onPick) {
  const { header } = source;
  const text = (from, to, other = "") => header.texts.slice(from, to).map((each, i) => (control.has(from + i) ? other : each)).join("");
  const question = text(header.question, header.prompt_tokens).trim();
  const context = nest("div", "dsa-context", nest("p", "", make("b", "", "Question"), ` ${question.length > 300 ? "… " + question.slice(-300) : question}`));
  const about = Object.entries(header.about).map(([name, value]) => (name === "model" ? value : `${name.replace("_", " ")} ${value}`));
  if (about.length) context.append(make("p", "dsa-note", about.join(" · ")));

  const first = header.prompt_tokens;
  const answer = make("div", "dsa-words-of");
  const buttons = [];
  let at = 0; // token of the answer
  for (const word of header.words) {
    const [from, to] = word.tokens;
    if (from < at) continue; // two words of one token
    const [, before, inside] = header.texts.slice(first + from, first + to).join("").match(/^(\s*)([^]*)$/);
    const each = button("dsa-word", inside, word.passage ? "What was read to write this word" : "No single passage stood out for this word", () => onPick(word));
    buttons.push([word, each]);
    answer.append(text(first + at, first + from, " "), before, each);
    at = to;
  }
  answer.append(text(first + at, first + header.recorded, " "));
  if (header.recorded < header.shares.length) answer.append(make("span", "dsa-note", ` … (the first ${grouped(header.recorded)} of ${grouped(header.shares.length)} tokens were recorded)`));

  const found = make("div", "dsa-story");
  const without = make("div", "dsa-without");
  const step = (number, title, child) => nest("section", "dsa-step", nest("h3", "", make("i", "dsa-number", number), title), child);
  const third = step("3", "Try without it", without);
  const box = nest("section", "dsa-steps", context, step("1", "The answer", answer), step("2", "What it read", found));
  if (source.replay) box.append(third);

  function draw(word) {
    for (const [each, shown] of buttons) press(shown, each === word);
    third.hidden = !word || !word.passage;
    without.replaceChildren();
    if (!third.hidden) {
      drawFound(word);
      const change = { selector: "indexer", topk: header.index_topk, forbidden: [word.passage], pinned: [], everywhere: false };
      const before = withoutThought(text(first, first + header.recorded));
      const side = (title, said) => nest("div", "dsa-side", make("h4", "", title), make("p", "", said));
      without.append(...replayer(source, change, "dsa-try", "Answer without this passage", "dsa-two",
        (other) => [side("With it", before), side("Without it", withoutThought(other.text) || "(nothing)")]));
      return;
    }
    const isShort = first + header.recorded <= header.index_topk;
    const reason = isShort ? `Shorter than ${grouped(header.index_topk)} tokens, so everything was read.` : word ? `No single passage stood out for “${word.text}”.` : "No single passage stood out. Pick a word.";
    found.replaceChildren(make("p", "", reason));
    if (isShort && source.pad) found.append(button("dsa-run", "Add a page of text and ask again", "", source.pad));
  }

  function drawFound(word) {
    const told = nest("p", "", "To write ", make("b", "dsa-told", word.text), ` it read, ${grouped(first + word.token - word.passage[0])} tokens back:`);
    found.replaceChildren(told, make("blockquote", "", header.texts.slice(...word.passage).join("").trim()));
    if (source.show) found.append(button("dsa-link", "Show it in the chat", "", () => source.show(word.passage)));
  }
  return { box, draw };
}

// A button that answers again under `change`, its progress, and a box for what `show` makes of the result.
function replayer(source, change, className, name, resultClass, show) {
  const progress = make("progress", "dsa-progress");
  progress.hidden = true;
  progress.setAttribute("aria-label", "How much of the other answer is computed");
  const result = make("div", resultClass);
  result.setAttribute("aria-live", "polite");
  const fail = (text) => result.replaceChildren(make("p", "dsa-problem", text));
  const run = button(`dsa-run ${className}`, name, "", async () => {
    run.disabled = true;
    progress.hidden = false;
    progress.removeAttribute("value");
    const other = await source.replay(change, (share) => (progress.value = share));
    if (other && !other.error) result.replaceChildren(...show(other));
    else fail(other ? other.error : other === null ? "The recording is no longer there." : "Can't reach the server. Try again.");
    progress.hidden = true;
    run.disabled = false;
  });
  return [run, progress, result];
}

// A chart's numbers as a table, folded. rows: as in `grid`.
function tableOf(title, rows) {
  const table = grid(rows);
  table.createCaption().textContent = title;
  return nest("details", "dsa-table", make("summary", "", "As a table"), table);
}
