// Shades in the chat itself what was read: tokens of a recording become ranges of the page's text. Browsers without the CSS custom
// highlight API only scroll to a passage.
const isLetter = (text) => /[\p{L}\p{N}]/u.test(text);

// Where each letter and digit of an element's text stands. Formats change other characters only, so counting these finds a place.
function lettersOf(element) {
  const places = [];
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data } = texts.currentNode;
    for (let i = 0; i < data.length; i++) if (isLetter(data[i])) places.push([texts.currentNode, i]);
  }
  return places;
}

const countLetters = (text) => [...Array(text.length).keys()].filter((i) => isLetter(text[i])).length;

// Finds the texts of the chat's turns in the prompt of a recording: [{from, to, element()}] in characters of the prompt.
function partsOf(header, messages, articles) {
  const prompt = header.texts.slice(0, header.prompt_tokens).join("");
  const parts = [];
  let at = 0;
  messages.forEach((message, index) => {
    const add = (text, selector, number) => {
      const from = text.trim() ? prompt.indexOf(text, at) : -1;
      if (from < 0) return;
      at = from + text.length;
      parts.push({ from, to: at, element: () => articles[index].querySelectorAll(selector)[number] });
    };
    if (message.error) return;
    (message.files || []).forEach((file, number) => add(file.text, ".file-text", number));
    add(message.content, message.role === "user" ? ".content" : ".body", 0);
  });
  return { prompt, parts };
}

// A map from tokens to ranges of the page: (first token, after the last) → ranges.
function chatMap(header, messages, articles) {
  const { prompt, parts } = partsOf(header, messages, articles);
  const starts = [0];
  for (const text of header.texts.slice(0, header.prompt_tokens)) starts.push(starts[starts.length - 1] + text.length);
  const letters = new Map();
  return (first, last) => {
    const [from, to] = [starts[first], starts[last]];
    return parts.filter((part) => part.from < to && from < part.to).map((part) => {
      const element = part.element();
      if (!element) return null;
      if (!letters.has(part)) letters.set(part, lettersOf(element));
      const places = letters.get(part);
      const begin = countLetters(prompt.slice(part.from, Math.max(from, part.from)));
      const end = begin + countLetters(prompt.slice(Math.max(from, part.from), Math.min(to, part.to)));
      if (end === begin || !places[end - 1]) return null;
      const range = new Range();
      range.setStart(...places[begin]);
      range.setEnd(places[end - 1][0], places[end - 1][1] + 1);
      return range;
    }).filter(Boolean);
  };
}

// levels: four arrays of ranges, weakest first.
function shade(levels) {
  if (!CSS.highlights) return;
  levels.forEach((ranges, i) => {
    if (ranges.length) CSS.highlights.set(`dsa-read-${i + 1}`, new Highlight(...ranges));
    else CSS.highlights.delete(`dsa-read-${i + 1}`);
  });
}

const clearShades = () => shade([[], [], [], []]);

function scrollToRange(range) {
  const element = range.startContainer.parentElement;
  const folded = element.closest(".folded");
  if (folded) folded.parentElement.querySelector(".more").click();
  const file = element.closest("details");
  if (file) file.open = true;
  const box = document.getElementById("dsa-log");
  box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

// The token of the answer at a point of the page, or null. Counted from the answer's end, because a thought may stand before it.
function tokenAt(header, body, x, y) {
  const spot = document.caretPositionFromPoint ? document.caretPositionFromPoint(x, y) : document.caretRangeFromPoint && document.caretRangeFromPoint(x, y);
  const [found, offset] = spot ? [spot.offsetNode || spot.startContainer, spot.offset ?? spot.startOffset] : [];
  if (!found || found.nodeType !== Node.TEXT_NODE || !body.contains(found)) return null;
  const before = new Range();
  before.setStart(body, 0);
  before.setEnd(found, offset);
  const left = countLetters(body.textContent) - countLetters(before.toString());
  const control = new Set(header.control);
  let seen = 0;
  for (let i = header.shares.length - 1; i >= 0; i--) {
    if (!control.has(header.prompt_tokens + i)) seen += countLetters(header.texts[header.prompt_tokens + i]);
    if (seen >= left && seen > 0) return i < header.recorded ? i : null;
  }
  return null;
}
