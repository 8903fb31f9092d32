"""The text of each token by itself."""

from collections.abc import Sequence

from .detokenizer import IncrementalDecoder
from .tokenizer import Tokenizer


def token_texts(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """One text for each token; joined, they are the whole text. A character that spans tokens belongs to the last of them."""
    names = {token: text for text, token in tokenizer.special_ids.items()}
    decoder = IncrementalDecoder(tokenizer)
    texts: list[str] = []
    for token in token_ids:
        if token in names:
            rest = decoder.finish()
            if rest and texts:
                texts[-1] += rest
            texts.append(names[token])
        else:
            texts.append(decoder.push([token]))
    if texts:
        texts[-1] += decoder.finish()
    return texts
