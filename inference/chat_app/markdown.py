"""Turns an answer into HTML that is safe by construction and keeps every value of the answer.

Nothing that the model writes becomes a tag, an address or an attribute. Raw HTML, links and images are shown as they are written.
Of Markdown, only what cannot be a value is formatted: lists keep their markers, because "0042. You said" is a code and not the
42nd item; two asterisks around words are bold; single ones, underscores, backslashes, entities and ">" are text.
"""

import re
from collections.abc import Sequence
from functools import cache
from html import escape, unescape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

# Characters. Longer texts are shown unparsed, because parsing them would delay other answers.
LONGEST = 200_000
# Rules that would change a value: \\server, &lt;, f[0](42), [1]: 5, > 5, 5 above a line of dashes.
UNUSED = ("escape", "entity", "link", "image", "autolink", "reference", "blockquote", "lheading")
_DATE = re.compile(r"^\s*\d+[.)] +\d", re.MULTILINE)  # 5. 6. 2026, which would be lists within lists
BEFORE_BOLD, AFTER_BOLD = " \n([\"'“—–", " \n)]\"'”—–.,;:!?"


def to_text(text: str) -> str:
    """Show an answer as it is written."""
    return f'<div class="plain">{escape(text)}</div>'


def to_html(text: str) -> str:
    """Turn an answer in Markdown into HTML; if that would lose a letter or a digit, show it as it is written."""
    if len(text) > LONGEST:
        return f"<pre>{escape(text)}</pre>"
    html: str = _parser(not _DATE.search(text)).render(text)
    return html if _characters(shown_text(html)) == _characters(text) else to_text(text)


def shown_text(html: str) -> str:
    """The text that a page with this HTML shows; all of it comes from the functions above, which escape "<" and ">"."""
    return unescape(re.sub("<[^>]*>", "", html))


def _characters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


class _Renderer(RendererHTML):
    def list_item_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        token = tokens[index]
        return f'<li><span class="marker">{escape(token.info + token.markup)}</span> '

    def ordered_list_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return "<ol>\n"  # without its start, which the items show

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        # The base class turns the info string into a class name.
        language = tokens[index].info.strip()
        label = f'<span class="language">{escape(language)}</span>' if language else ""
        return f'<div class="code">{label}<pre><code>{escape(tokens[index].content)}</code></pre></div>'


def _keep_marks(state: StateCore) -> None:
    """Turn emphasis back into text, but for two asterisks around words."""
    for block in state.tokens:
        children = block.children or []
        open_marks = []
        for i, token in enumerate(children):
            if token.type in ("em_open", "strong_open"):
                open_marks.append(i)
            elif token.type in ("em_close", "strong_close"):
                first = open_marks.pop()
                inside = "".join(each.content for each in children[first + 1 : i])
                before = "".join(map(_written, children[:first]))[-1:]
                after = "".join(map(_written, children[i + 1 :]))[:1]
                is_bold = token.markup == "**" and before in BEFORE_BOLD and after in AFTER_BOLD
                if not (is_bold and inside[:1].isalnum() and (inside[-1].isalnum() or inside[-1] in ".!?:)%")):
                    for mark in (children[first], token):
                        mark.type, mark.tag, mark.nesting, mark.content = "text", "", 0, mark.markup


def _written(token: Token) -> str:
    return "\n" if token.type.endswith("break") else token.content or token.markup


@cache
def _parser(with_lists: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer)
    parser.core.ruler.push("keep_marks", _keep_marks)
    return parser.enable("table").disable(UNUSED if with_lists else (*UNUSED, "list"))
