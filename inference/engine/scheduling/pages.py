"""The pages of the KV caches: which are held, and which can be reused. It uses page ids and token ids, but no tensors."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

ROOT = 0  # the prefix id of the empty prefix

_Key = tuple[int, tuple[int, ...]]


class PagePool:
    """Page ids with reference counts, and prefix reuse: a full page can be shared by requests with the same tokens up to its end.

    A page is *used* (some request holds it), *cached* (no request holds it, but its contents can be reused) or *free*;
    free + used + cached = page_count, always. When no page is free, the least recently used cached page is evicted.

    A *prefix id* stands for the tokens of a prefix of full pages. An entry's key is (prefix id before the page, tokens of the
    page): tokens are compared, not only hashes. Prefix ids are never reused: once a page is evicted, the pages registered after it
    cannot be found any more, and are evicted in their turn.

    If the draft layer has written a page, its key also holds the token after the page: the draft layer's last entry depends on that
    token.
    """

    def __init__(self, page_count: int, page_size: int, reuse: bool = True, drafts: bool = False) -> None:
        self.page_count = page_count
        self.page_size = page_size  # tokens
        self.reuse = reuse
        self.drafts = drafts
        self._free = list(range(page_count - 1, -1, -1))  # a stack: the page that became free last is taken first
        self._references = [0] * page_count
        self._cached: OrderedDict[int, None] = OrderedDict()  # the least recently used first
        self._entries: dict[_Key, tuple[int, int]] = {}  # (page, prefix id after it)
        self._keys: list[_Key | None] = [None] * page_count  # by page: the key of its entry
        self._last_prefix_id = ROOT

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def used(self) -> int:
        return self.page_count - self.free - self.cached

    @property
    def available(self) -> int:
        """The number of pages that `allocate` can give: the free and the cached ones."""
        return self.free + self.cached

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages with unspecified contents. The caller has checked that `count` is at most `available`."""
        assert count <= self.available, f"count is {count}; expected at most {self.available}"
        pages = []
        for _ in range(count):
            page = self._free.pop() if self._free else self._evict()
            self._references[page] = 1
            pages.append(page)
        return pages

    def find(self, tokens: Sequence[int], most: int | None = None) -> tuple[list[int], int, int]:
        """The longest known prefix of `tokens[:most]`: its pages, the id after it, how many have the draft layer's entries."""
        pages: list[int] = []
        prefix_id, drafted, whole = ROOT, 0, tuple(tokens)
        for end in range(self.page_size, (len(whole) if most is None else most) + 1, self.page_size):
            entry, has_drafts = self._entry(prefix_id, whole, end)
            if entry is None:
                break
            page, prefix_id = entry
            pages.append(page)
            drafted += has_drafts
        return pages, prefix_id, drafted

    def match(self, tokens: Sequence[int], most: int | None = None) -> tuple[list[int], int, int]:
        """Like `find`, and takes the pages."""
        pages, prefix_id, drafted = self.find(tokens, most)
        for page in pages:
            if self._references[page] == 0:
                del self._cached[page]
            self._references[page] += 1
        return pages, prefix_id, drafted

    def register(self, page: int, prefix_id: int, tokens: Sequence[int]) -> int:
        """Make a full, completely written page reusable after the prefix `prefix_id`. Returns the prefix id after it.

        tokens: the page's, and the one after it if the draft layer has written its entries of the page, too. If another
        page with the same contents is registered already, that one stays, and this one is not shared.
        """
        if not self.reuse:
            return ROOT
        assert self._references[page] > 0 and self.page_size <= len(tokens) <= self.page_size + 1
        key = (prefix_id, tuple(tokens))
        entry = self._entries.get(key)
        if entry is not None:
            return entry[1]
        assert self._keys[page] is None, f"page {page} is registered already, with other contents"
        self._last_prefix_id += 1
        self._entries[key] = (page, self._last_prefix_id)
        self._keys[page] = key
        return self._last_prefix_id

    def release(self, pages: Sequence[int]) -> None:
        """Give distinct pages back, once for each time they were taken."""
        for page in pages:  # before anything changes
            assert self._references[page] > 0, f"page {page} is released but not held"
        for page in reversed(pages):  # so that a sequence's end is evicted before its beginning, which others may share
            self._references[page] -= 1
            if self._references[page] == 0:
                if self._keys[page] is None:
                    self._free.append(page)
                else:
                    self._cached[page] = None

    def discard(self, pages: Iterable[int]) -> None:
        """Make these held pages no longer reusable, because their contents may be wrong."""
        for page in pages:
            assert self._references[page] > 0
            self._forget_key(page)

    def clear(self) -> None:
        """Make no page reusable. The cached ones become free; pages that requests hold stay held."""
        self._free.extend(self._cached)
        self._cached.clear()
        self._entries.clear()
        self._keys = [None] * self.page_count

    def rebuild(self, held: Iterable[Sequence[int]]) -> None:
        """Count all references anew, from the pages that each holder has. For repair after a fault: nothing is reusable then."""
        references = [0] * self.page_count
        for pages in held:
            for page in pages:
                references[page] += 1
        self.clear()
        self._references = references
        self._free = [page for page in reversed(range(self.page_count)) if not references[page]]

    def _entry(self, prefix_id: int, tokens: tuple[int, ...], end: int) -> tuple[tuple[int, int] | None, bool]:
        """The entry of the page that ends before tokens[end], if there is one, and whether it has the draft layer's entries."""
        own = tokens[end - self.page_size : end]
        if self.drafts and end < len(tokens):
            entry = self._entries.get((prefix_id, (*own, tokens[end])))
            if entry is not None:
                return entry, True
        return self._entries.get((prefix_id, own)), False

    def _evict(self) -> int:
        """Take the least recently used cached page."""
        page, _ = self._cached.popitem(last=False)
        self._forget_key(page)
        return page

    def _forget_key(self, page: int) -> None:
        key = self._keys[page]
        if key is not None:
            del self._entries[key]
            self._keys[page] = None
