"""Pages of the paged caches: who holds which, and which can be reused. Knows page ids and token ids, no tensors."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

ROOT = 0  # the chain before the first page

_Key = tuple[int, tuple[int, ...]]


class PagePool:
    """Page ids with reference counts, and reuse of full pages whose whole prefix is the same.

    A page is *used* (some request holds it), *cached* (nobody does, but its contents can be reused) or *free*;
    free + used + cached = page_count, always. When pages run out, the cached one that was let go longest ago is taken.

    A *chain* names the contents of a prefix of full pages. An entry's key is (chain before the page, the page's tokens), compared
    token by token, so two prefixes are never confused, as bare hashes could be. Chains are numbered and never reused: once a
    page is evicted, what was registered behind it cannot be found any more, and leaves in its turn.
    """

    def __init__(self, page_count: int, page_size: int, reuse: bool = True) -> None:
        if page_count < 1:
            raise ValueError(f"page_count is {page_count}; at least 1 is wanted")
        self.page_count = page_count
        self.page_size = page_size  # tokens
        self.reuse = reuse
        self._free = list(range(page_count - 1, -1, -1))  # a stack: recently used memory is taken first
        self._references = [0] * page_count
        self._cached: OrderedDict[int, None] = OrderedDict()  # let go longest ago first
        self._entries: dict[_Key, tuple[int, int]] = {}  # → (page, chain after it)
        self._keys: list[_Key | None] = [None] * page_count  # of each page that has an entry
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
        """Pages that `allocate` can give: the free and the cached ones."""
        return self.free + self.cached

    def pages_for(self, tokens: int) -> int:
        """How many pages hold this many tokens."""
        return -(-tokens // self.page_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages of unspecified contents. At most `available` of them: the caller checks."""
        assert count <= self.available, f"{count} pages wanted of {self.available}"
        pages = []
        for _ in range(count):
            if self._free:
                page = self._free.pop()
            else:
                page, _ = self._cached.popitem(last=False)
                self._forget_key(page)
            self._references[page] = 1
            pages.append(page)
        return pages

    def match(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        """Take the cached pages that hold the longest prefix of `tokens`, in whole pages; also the chain after them."""
        pages: list[int] = []
        prefix_id = ROOT
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            entry = self._entries.get((prefix_id, tuple(tokens[end - self.page_size : end])))
            if entry is None:
                break
            page, prefix_id = entry
            if self._references[page] == 0:
                del self._cached[page]
            self._references[page] += 1
            pages.append(page)
        return pages, prefix_id

    def register(self, page: int, prefix_id: int, tokens: Sequence[int]) -> int:
        """Offer a full, completely written page for reuse behind `chain`; returns the chain after it.

        Contents that another page offers already keep that page; this one stays private to its holders.
        """
        if not self.reuse:
            return ROOT
        assert self._references[page] > 0 and self._keys[page] is None and len(tokens) == self.page_size
        key = (prefix_id, tuple(tokens))
        entry = self._entries.get(key)
        if entry is not None:
            return entry[1]
        self._last_prefix_id += 1
        self._entries[key] = (page, self._last_prefix_id)
        self._keys[page] = key
        return self._last_prefix_id

    def release(self, pages: Sequence[int]) -> None:
        """Let go of pages, once for each time they were taken."""
        for page in reversed(pages):  # the end of a sequence is evicted before its beginning, which others may share
            assert self._references[page] > 0, f"page {page} is released but not held"
            self._references[page] -= 1
            if self._references[page] == 0:
                if self._keys[page] is None:
                    self._free.append(page)
                else:
                    self._cached[page] = None

    def discard(self, pages: Iterable[int]) -> None:
        """No longer offer these held pages for reuse: what they contain is in doubt."""
        for page in pages:
            assert self._references[page] > 0
            self._forget_key(page)

    def clear(self) -> None:
        """Forget all that could be reused; pages that are held stay held."""
        self._free.extend(self._cached)
        self._cached.clear()
        self._entries.clear()
        self._keys = [None] * self.page_count

    def check(self) -> None:
        """Assert that every page is in exactly one state and that the tables agree. For tests; costs O(page_count)."""
        states = [0] * self.page_count
        for page in self._free:
            states[page] += 1
            assert self._references[page] == 0 and self._keys[page] is None, f"free page {page} is held or registered"
        for page in self._cached:
            states[page] += 1
            assert self._references[page] == 0 and self._keys[page] is not None, f"cached page {page} is held or empty"
        for page, references in enumerate(self._references):
            assert states[page] == (0 if references else 1), (
                f"page {page}: {references} references, {states[page]} lists"
            )
        assert self.free + self.used + self.cached == self.page_count
        registered = {page: key for page, key in enumerate(self._keys) if key is not None}
        assert registered == {page: key for key, (page, _) in self._entries.items()}, "entries and keys disagree"

    def _forget_key(self, page: int) -> None:
        key = self._keys[page]
        if key is not None:
            del self._entries[key]
            self._keys[page] = None
