"""Turns the model's Markdown into HTML that is safe by construction.

Nothing that the model writes becomes a tag, an address or an attribute other than a title. Raw HTML is escaped. Images and links
keep their text and show their address as a tooltip, but they lead nowhere and load nothing.
"""

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

# Characters. Longer texts are shown unparsed, because parsing them would delay other answers.
LONGEST = 200_000


def to_html(text: str) -> str:
    """Turn an answer into HTML."""
    if len(text) > LONGEST:
        return f"<pre>{escape(text)}</pre>"
    return _parser().render(text)


class _Renderer(RendererHTML):
    def link_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        address = str(tokens[index].attrs.get("href", ""))
        return f'<span class="link" title="{escape(address)}">'

    def link_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return "</span>"

    def image(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        words = self.renderInlineAsText(tokens[index].children or [], options, env) or "image"
        address = str(tokens[index].attrs.get("src", ""))
        return f'<span class="link" title="{escape(address)}">[{escape(words)}]</span>'

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        # The base class turns the info string into a class name.
        language = tokens[index].info.strip().split(" ")[0][:20]
        label = f'<span class="language">{escape(language)}</span>' if language else ""
        return f'<div class="code">{label}<pre><code>{escape(tokens[index].content)}</code></pre></div>'


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer)
    return parser.enable(["table", "strikethrough"])
