// The inspector's three steps: the answer in words, the sentence that was read to write one of them, and the answer without it.
"use strict";

// Texts of the question and the answer, without control tokens.
function plainText(header, from, to) {
  const control = new Set(header.control);
  return header.texts.slice(from, to).filter((_, i) => !control.has(from + i)).join("").trim();
}

const withoutThought = (text) => text.split("</think>").pop().replace(/<[/]?think>|<｜[^<>]*｜>/g, "").trim();

// Returns {box, draw(word)}: `word` is an entry of header.words, or null. onPick(word) is called when one is chosen.
function mountSteps(source, { header, onPick, onPassage }) {
  const box = make("section", "dsa-steps");
  const context = make("div", "dsa-context");
  const about = Object.entries(header.about || {}).map(([name, value]) => (name === "model" ? value : `${name.replace("_", " ")} ${value}`));
  const question = plainText(header, header.question, header.prompt_tokens);
  const line = (name, text) => {
    const row = make("p");
    row.append(make("b", "", name), ` ${text}`);
    return row;
  };
  context.append(line("Question", question.length > 300 ? "… " + question.slice(-300) : question));
  if (about.length) context.append(make("p", "dsa-note", about.join(" · ")));

  const answer = make("div", "dsa-words-of");
  const buttons = [];
  let at = 0; // token of the answer
  const control = new Set(header.control);
  const between = (to) => {
    const texts = [];
    for (; at < to; at++) texts.push(control.has(header.prompt_tokens + at) ? " " : header.texts[header.prompt_tokens + at] || "");
    if (texts.length) answer.append(texts.join(""));
  };
  for (const word of header.words) {
    if (word.tokens[0] < at) continue; // two words of one token
    between(word.tokens[0]);
    const text = header.texts.slice(header.prompt_tokens + word.tokens[0], header.prompt_tokens + word.tokens[1]).join("");
    const [, before, inside] = text.match(/^(\s*)([^]*)$/);
    const button = make("button", "dsa-word", inside, word.passage ? "What was read to write this word" : "No single passage stood out for this word");
    button.type = "button";
    button.addEventListener("click", () => onPick(word));
    buttons.push([word, button]);
    answer.append(before, button);
    at = word.tokens[1];
  }
  between(header.recorded);
  if (header.recorded < header.shares.length) answer.append(make("span", "dsa-note", ` … (the first ${grouped(header.recorded)} of ${grouped(header.shares.length)} tokens were recorded)`));

  const found = make("div", "dsa-story");
  const without = make("div", "dsa-without");
  const step = (number, title, ...children) => {
    const part = make("section", "dsa-step");
    const heading = make("h3");
    heading.append(make("i", "dsa-number", number), title);
    part.append(heading, ...children);
    return part;
  };
  const third = step("3", "Try without it", without);
  box.append(context, step("1", "The answer", answer), step("2", "What it read", found), ...(source.replay ? [third] : []));

  function drawFound(word) {
    third.hidden = !word || !word.passage;
    without.replaceChildren();
    if (!word || !word.passage) {
      const isShort = header.prompt_tokens + header.recorded <= header.index_topk;
      const reason = isShort ? `Shorter than ${grouped(header.index_topk)} tokens, so everything was read.` : word ? `No single passage stood out for “${word.text}”.` : "No single passage stood out. Pick a word.";
      found.replaceChildren(make("p", "", reason));
      if (isShort && source.pad) {
        const more = make("button", "dsa-run", "Add a page of text and ask again");
        more.type = "button";
        more.addEventListener("click", source.pad);
        found.append(more);
      }
      return;
    }
    const back = header.prompt_tokens + word.token - word.passage[0];
    const told = make("p");
    told.append("To write ", make("b", "dsa-told", word.text), ` it read, ${grouped(back)} tokens back:`);
    const quote = make("blockquote", "", header.texts.slice(...word.passage).join("").trim());
    found.replaceChildren(told, quote);
    if (onPassage) {
      const show = make("button", "dsa-link", "Show it in the chat");
      show.type = "button";
      show.addEventListener("click", () => onPassage(word.passage));
      found.append(show);
    }
    drawWithout(word);
  }

  function drawWithout(word) {
    const run = make("button", "dsa-run dsa-try", "Answer without this passage");
    run.type = "button";
    const progress = make("progress", "dsa-progress");
    progress.hidden = true;
    progress.setAttribute("aria-label", "How much of the other answer is computed");
    const result = make("div", "dsa-two");
    result.setAttribute("aria-live", "polite");
    run.addEventListener("click", async () => {
      run.disabled = true;
      progress.hidden = false;
      const change = { selector: "indexer", topk: header.index_topk, forbidden: [word.passage], pinned: [], everywhere: false };
      try {
        const other = await source.replay(change, (share) => (progress.value = share));
        if (!other || other.error) result.replaceChildren(make("p", "dsa-problem", (other && other.error) || "The recording is no longer there."));
        else result.replaceChildren(side("With it", withoutThought(plainText(header, header.prompt_tokens, header.prompt_tokens + header.recorded))), side("Without it", withoutThought(other.text) || "(nothing)"));
      } catch (error) {
        result.replaceChildren(make("p", "dsa-problem", "Can't reach the server."));
      }
      progress.hidden = true;
      run.disabled = false;
    });
    without.replaceChildren(run, progress, result);
  }

  function side(title, text) {
    const part = make("div", "dsa-side");
    part.append(make("h4", "", title), make("p", "", text));
    return part;
  }

  return {
    box,
    draw(word) {
      for (const [each, button] of buttons) {
        button.classList.toggle("dsa-picked", each === word);
        button.setAttribute("aria-pressed", String(each === word));
      }
      drawFound(word);
    },
  };
}

// A chart's numbers as a table, folded.
function tableOf(title, head, rows) {
  const box = make("details", "dsa-table");
  const table = make("table");
  const row = (cells, tag) => {
    const line = make("tr");
    cells.forEach((cell, i) => {
      const part = make(i ? tag : "th", "", cell);
      if (part.tagName === "TH") part.scope = tag === "th" ? "col" : "row";
      line.append(part);
    });
    return line;
  };
  table.append(make("caption", "", title), row(head, "th"), ...rows.map((cells) => row(cells, "td")));
  box.append(make("summary", "", "As a table"), table);
  return box;
}
