"""One rule for block tables, lengths, slots and caches with a stride between pages (kernels/checks.py), in every operation."""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from deepseek_v32.kernels import flash_mla, flash_mla_2025_09
from deepseek_v32.kernels.cache_stamps import check_cache, multiplier_table, stamp_tokens
from deepseek_v32.kernels.cache_write import gather_index_keys, gather_latents, write_index_cache, write_latent_cache
from deepseek_v32.kernels.dense_mla import dense_mla_decode, paged_mla_decode_h16
from deepseek_v32.kernels.implementations import INVARIANT, OPERATIONS
from deepseek_v32.kernels.indexer_logits import paged_indexer_logits
from deepseek_v32.kernels.norm_and_cache import norm_and_cache
from deepseek_v32.kernels.reference.cache_stamps import Stamps
from deepseek_v32.kernels.select_topk import positions_to_slots, select_topk_slots
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from deepseek_v32.kernels.types import Caches, Norms
from support.backends import Backend

PAGE, PAGES = 64, 3
MOST = PAGES * PAGE - 1
FP8 = torch.float8_e4m3fn


def int32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def cache(width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random entries; bytes are of finite e4m3 values and of scales and RoPE dims near 1."""
    values = torch.randn(PAGES, PAGE, 1, width, generator=torch.Generator().manual_seed(width))
    if dtype != torch.uint8:
        return values.to(dtype)
    return torch.full_like(values, 0x3F, dtype=torch.uint8).sub_(values.gt(0).byte())


def apart(x: torch.Tensor) -> torch.Tensor:
    """The same cache with a gap after each page."""
    wide = x.new_zeros(PAGES, PAGE + 2, *x.shape[2:])
    wide[:, :PAGE] = x
    return wide[:, :PAGE]


def stamps() -> Stamps:
    zeros = torch.zeros(1, 2, PAGES, dtype=torch.int64)
    return Stamps(
        page_size=PAGE,
        chains=torch.zeros(PAGES * PAGE, 2, dtype=torch.int64),
        columns=torch.zeros(1, 2, PAGES * PAGE, dtype=torch.int32),
        hashes=zeros,
        factors=torch.ones(1, 2, dtype=torch.int64),
        multipliers=torch.from_numpy(multiplier_table(PAGE * 656 // 8).view("int64")),
        addresses=zeros[..., 0],
        page_words=(PAGE * 656 // 8, PAGE * 132 // 8),
        claims=torch.zeros(2, dtype=torch.int64),
        found=torch.zeros(2, 9, dtype=torch.int64),
        padding_page=-1,
    )


def flash(version: Any) -> Callable[..., Any]:
    def dense(q: torch.Tensor, cache: torch.Tensor, block_table: torch.Tensor, cache_seqlens: torch.Tensor) -> Any:
        metadata = version.get_mla_metadata(cache_seqlens, 2, 1)
        if version is flash_mla:
            metadata = metadata[:1]
        return version.flash_mla_with_kvcache(q, cache, block_table, cache_seqlens, 512, *metadata)

    return dense


def write_both(caches: Caches, backend: Any = "auto") -> Any:
    norms = Norms(*(torch.ones(n) for n in (8, 512, 128, 128)), 1e-6, 1e-6)
    angles = torch.ones(2, 32), torch.zeros(2, 32)
    inputs = torch.ones(2, 8), torch.ones(2, 576), torch.ones(2, 128)
    return norm_and_cache(*inputs, norms, *angles, caches, backend=backend)


def write_caches(latent: torch.Tensor, keys: torch.Tensor, slots: torch.Tensor, backend: Any = "auto") -> Any:
    return write_both(Caches(latent, keys, slots), backend)


SLOTS = torch.tensor([5, MOST])
TOO_FAR, NEGATIVE = torch.tensor([5, MOST + 1]), torch.tensor([-1, 5])
PAGED = {"block_table": int32([[2, 0, 1], [1, 0, 0]])}  # the second sequence has one page
DENSE = {"q": torch.randn(2, 1, 2, 576), "cache": cache(576), **PAGED, "cache_seqlens": int32([130, 64])}
SCORES = {
    **{"q": torch.randn(2, 1, 4, 128), "cache": cache(128), "weights": torch.ones(2, 1, 4), **PAGED},
    **{"lengths": int32([130, 64]), "max_context": 150},
}
ROPE = {"cos": torch.ones(2, 32), "sin": torch.zeros(2, 32)}
SPARSE = {"q": torch.randn(2, 1, 2, 576), "indices": int32([[[3, 191]], [[64, -1]]]), "softmax_scale": 0.1}
VALID: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "dense_mla_decode": (dense_mla_decode, DENSE | {"softmax_scale": 0.1}),
    "flash_mla": (flash(flash_mla), DENSE),
    "flash_mla_2025_09": (flash(flash_mla_2025_09), DENSE),
    "paged_mla_decode_h16": (
        paged_mla_decode_h16,
        {
            **{"q_nope": torch.randn(2, 16, 512), "q_pe": torch.randn(2, 16, 64)},
            **{"ckv_cache": torch.randn(PAGES, 1, 512), "kpe_cache": torch.randn(PAGES, 1, 64)},
            **{"kv_indptr": int32([0, 2, 3]), "kv_indices": int32([2, 0, 1, 99]), "sm_scale": 0.1},
        },
    ),
    "paged_indexer_logits": (paged_indexer_logits, SCORES),
    "paged_indexer_logits, FP8": (
        paged_indexer_logits,
        SCORES | {"q": torch.randn(2, 1, 4, 128).to(FP8), "cache": cache(132, torch.uint8)},
    ),
    "select_topk_slots": (
        select_topk_slots,
        {
            **{"logits": torch.randn(2, 150), "starts": None, "ends": int32([130, 64]), "k": 70, **PAGED},
            "page_size": PAGE,
        },
    ),
    "positions_to_slots": (positions_to_slots, {"positions": int32([[149, -1], [0, 63]]), **PAGED, "page_size": PAGE}),
    "sparse_mla_decode": (sparse_mla_decode, SPARSE | {"cache": cache(576)}),
    "sparse_mla_decode, FP8": (sparse_mla_decode, SPARSE | {"cache": cache(656, torch.uint8)}),
    "sparse_mla_prefill, FP8": (
        sparse_mla_prefill,
        SPARSE | {"q": torch.randn(2, 2, 576), "kv": cache(656, torch.uint8)},
    ),
    "gather_latents": (
        gather_latents,
        {"cache": cache(576), "slots": SLOTS, "latent_dim": 512, "dtype": torch.float32},
    ),
    "gather_latents, FP8": (
        gather_latents,
        {"cache": cache(656, torch.uint8), "slots": SLOTS, "latent_dim": 512, "dtype": torch.float32},
    ),
    "gather_index_keys": (gather_index_keys, {"cache": cache(128), "slots": SLOTS}),
    "gather_index_keys, FP8": (gather_index_keys, {"cache": cache(132, torch.uint8), "slots": SLOTS}),
    "write_latent_cache": (
        write_latent_cache,
        {
            **{"kv": torch.ones(2, 576), "norm_weight": torch.ones(512), "eps": 1e-6, **ROPE},
            **{"cache": cache(576), "slots": SLOTS},
        },
    ),
    "write_index_cache": (
        write_index_cache,
        {"keys": torch.ones(2, 128), **ROPE, "cache": cache(128), "slots": SLOTS},
    ),
    "norm_and_cache": (
        write_caches,
        {"latent": cache(656, torch.uint8), "keys": cache(132, torch.uint8), "slots": SLOTS},
    ),
    "stamp_tokens": (
        stamp_tokens,
        {
            **{"tokens": torch.tensor([1, 2]), "positions": torch.tensor([129, 64]), "slots": SLOTS, **PAGED},
            **{"query_starts": None, "stamps": stamps()},
        },
    ),
    "stamp_tokens of prompts": (
        stamp_tokens,
        {
            **{"tokens": torch.tensor([1, 2]), "positions": torch.tensor([129, 64]), "slots": SLOTS, **PAGED},
            **{"query_starts": int32([0, 1, 2]), "stamps": stamps()},
        },
    ),
    "check_cache": (
        check_cache,
        {
            **{"caches": [(cache(656, torch.uint8), cache(132, torch.uint8))], "stamps": stamps(), **PAGED},
            **{"step": torch.tensor([1]), "tasks": None, "lengths": int32([130, 64]), "truths": None},
        },
    ),
    "check_cache of tasks": (
        check_cache,
        {
            **{"caches": [(cache(656, torch.uint8), cache(132, torch.uint8))], "stamps": stamps(), **PAGED},
            **{"step": torch.tensor([1]), "tasks": torch.tensor([[0, 2, 1, 0, 0]]), "lengths": None},
            "truths": torch.tensor([[0, 129, 0], [-1, 999, 0]]),
        },
    ),
}
LONG = "block_table has 3 pages of 64 for a sequence"
NO_PAGE = int32([[2, 0, 3], [1, 0, 0]]), "block_table holds 3; expected 0 to 2, the cache has 3 pages"
BEFORE = int32([[2, -1, 1], [1, 0, 0]]), "block_table holds -1; expected 0 to 2, the cache has 3 pages"
NARROW = int32([[2, 0], [1, 0]])
OF_CONTEXTS = [("block_table", *NO_PAGE), ("block_table", *BEFORE)]
OF_SLOTS = [
    ("slots", TOO_FAR, "slots holds 192; expected 0 to 191, the cache has 3 pages of 64"),
    ("slots", NEGATIVE, "slots holds -1; expected 0 to 191"),
]
OF_DENSE = [
    *OF_CONTEXTS,
    ("block_table", NARROW, "cache_seqlens holds 130; expected 0 to 128, block_table has 2 pages of 64 for a sequence"),
    ("cache_seqlens", int32([193, 64]), f"cache_seqlens holds 193; expected 0 to 192, {LONG}"),
    ("cache_seqlens", int32([-1, 64]), "cache_seqlens holds -1; expected 0 to 192"),
]
OF_SCORES = [
    *OF_CONTEXTS,
    ("block_table", NARROW, "lengths holds 130; expected 0 to 128, block_table has 2 pages"),
    ("lengths", int32([193, 64]), "lengths holds 193; expected 0 to 150, max_context is 150"),
    ("lengths", int32([130, -2]), "lengths holds -2; expected 0 to 150"),
    ("max_context", 129, "lengths holds 130; expected 0 to 129, max_context is 129"),
    ("max_context", -1, "max_context is -1; expected at least 0"),
]
OF_STAMPS = [
    ("positions", torch.tensor([193, 64]), "positions holds 193; expected 0 to 192"),
    ("positions", torch.tensor([-1, 64]), "positions holds -1"),
    ("block_table", *BEFORE),
    *OF_SLOTS,
]
REFUSED: dict[str, list[tuple[str, Any, str]]] = {
    "dense_mla_decode": OF_DENSE,
    "flash_mla": OF_DENSE,
    "flash_mla_2025_09": OF_DENSE,
    "paged_mla_decode_h16": [
        ("kv_indices", int32([2, 3, 1]), "kv_indices holds 3; expected 0 to 2, the cache has 3 pages"),
        ("kv_indices", int32([2, 0, -1]), "kv_indices holds -1"),
        ("kv_indptr", int32([0, 2, 5]), "kv_indptr holds 5; expected 0 to 4, kv_indices has 4 pages"),
        ("kv_indptr", int32([0, 3, 2]), "kv_indptr.diff() holds -1; expected 0 to 4, bounds ascend"),
        ("kv_indptr", int32([-1, 2, 3]), "kv_indptr holds -1"),
    ],
    "paged_indexer_logits": OF_SCORES,
    "paged_indexer_logits, FP8": OF_SCORES,
    "select_topk_slots": [
        ("block_table", NARROW, "ends holds 130; expected 0 to 128, block_table has 2 pages of 64 for a sequence"),
        (
            "block_table",
            int32([[2, -1, 1], [1, 0, 0]]),
            "block_table holds -1; expected 0 to 33554431, slots are int32",
        ),
        ("block_table", int32([[2, 2**30, 1], [1, 0, 0]]), "block_table holds 1073741824"),
        ("starts", int32([-70, 0]), "ends - starts holds 200; expected 0 to 192"),
    ],
    "positions_to_slots": [
        ("block_table", NARROW, "positions holds 149; expected -1 to 127, block_table has 2 pages of 64"),
        ("positions", int32([[192, -1], [0, 63]]), "positions holds 192"),
        (
            "block_table",
            int32([[2, 0, -1], [1, 0, 0]]),
            "block_table holds -1; expected 0 to 33554431, slots are int32",
        ),
    ],
    "gather_latents": OF_SLOTS,
    "gather_latents, FP8": OF_SLOTS,
    "gather_index_keys": OF_SLOTS,
    "gather_index_keys, FP8": OF_SLOTS,
    "write_latent_cache": OF_SLOTS,
    "write_index_cache": OF_SLOTS,
    "norm_and_cache": [(name, value, f"caches.{message}") for name, value, message in OF_SLOTS],
    "stamp_tokens": OF_STAMPS,
    "stamp_tokens of prompts": [*OF_STAMPS, ("query_starts", int32([0, 1, 3]), "query_starts holds 3")],
    "check_cache": [*OF_CONTEXTS, ("lengths", int32([193, 64]), "lengths holds 193; expected 0 to 192")],
    "check_cache of tasks": [
        ("block_table", *NO_PAGE),
        ("tasks", torch.tensor([[2, 0, 1, 0, 0]]), "tasks[:, 0] holds 2; expected 0 to 1"),
        ("tasks", torch.tensor([[0, 3, 1, 0, 0]]), "tasks[:, 1] holds 3; expected 0 to 2"),
        ("tasks", torch.tensor([[0, 0, 65, 0, 0]]), "tasks[:, 2] holds 65; expected 0 to 64"),
        ("tasks", torch.tensor([[0, 0, 1, 0, 2]]), "tasks[:, 4] holds 2; expected 0 to 1"),
        ("truths", torch.tensor([[2, 0, 0]]), "truths[:, 0] holds 2; expected -1 to 1"),
        ("truths", torch.tensor([[0, 192, 0]]), "truths[:, 1] holds 192; expected 0 to 191"),
    ],
}
CASES = [
    pytest.param(name, argument, value, message, id=f"{name}: {message[:40]}")
    for name, cases in REFUSED.items()
    for argument, value, message in cases
]


def backends(name: str) -> list[Any]:
    """The implementations of an operation that run on a CPU."""
    operation = name.split(",")[0].split(" of ")[0]
    if operation not in OPERATIONS:
        return [None]
    return ["reference", *[(INVARIANT,)] * any(one.backend == INVARIANT for one in OPERATIONS[operation])]


def run(name: str, backend: Any, **changes: Any) -> Any:
    function, given = VALID[name]
    copied = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
    if copied.get("kv", copied.get("q", torch.ones(1))).dim() == 3 and "indices" in copied:  # prefill: [T, 1, K]
        copied["indices"] = copied["indices"].view(2, 1, 2)
    return function(**copied | changes, **({} if backend is None else {"backend": backend}))


@pytest.mark.parametrize("name", VALID)
def test_the_valid_arguments_are_taken(name: str) -> None:
    for backend in backends(name):
        run(name, backend)


@pytest.mark.parametrize(("name", "argument", "value", "message"), CASES)
def test_values_outside_are_refused(name: str, argument: str, value: Any, message: str) -> None:
    for backend in backends(name):
        with pytest.raises(ValueError, match=re.escape(message)) as error:
            run(name, backend, **{argument: value})
        assert "\n" not in str(error.value)


def test_columns_after_a_sequence_may_hold_anything() -> None:
    unused = int32([[2, 0, 1], [1, 77, -5]])
    names = (
        "dense_mla_decode",
        "paged_indexer_logits",
        "paged_indexer_logits, FP8",
        "select_topk_slots",
        "positions_to_slots",
    )
    for name in names:
        for backend in backends(name):
            same = run(name, backend), run(name, backend, block_table=unused)
            torch.testing.assert_close(*same, rtol=0, atol=0, equal_nan=True)


def test_no_slots_are_read_as_none() -> None:
    for name in VALID:
        if name.startswith("gather"):
            found = run(name, "reference", slots=torch.empty(0, dtype=torch.int64))
            assert len(found if isinstance(found, torch.Tensor) else found[0]) == 0
    with pytest.raises(ValueError, match="latent_dim is 500; expected a multiple of 128 for an FP8 cache"):
        run("gather_latents, FP8", "reference", latent_dim=500)


def test_a_wide_max_context_needs_no_wide_table() -> None:
    for name in ("paged_indexer_logits", "paged_indexer_logits, FP8"):
        for backend in backends(name):
            wide, narrow = run(name, backend, max_context=500), run(name, backend)
            assert wide.shape == (2, 500)
            assert wide[0, :130].equal(narrow[0, :130]) and wide[1, :64].equal(narrow[1, :64])


def test_an_index_outside_the_cache_selects_nothing() -> None:
    for name in ("sparse_mla_decode", "sparse_mla_decode, FP8", "sparse_mla_prefill, FP8"):
        for backend in backends(name):
            for outside in (MOST + 1, -7):
                expected = run(name, backend, indices=int32([[[3, -1]], [[64, -1]]]))
                found = run(name, backend, indices=int32([[[3, outside]], [[64, outside]]]))
                torch.testing.assert_close(found, expected, rtol=0, atol=0)


READS = ("dense", "flash", "paged_indexer", "sparse", "gather", "paged_mla")


@pytest.mark.parametrize("name", VALID)
def test_pages_may_lie_apart_where_caches_are_read(name: str) -> None:
    _, given = VALID[name]
    caches = [key for key in given if key in ("cache", "kv", "ckv_cache", "kpe_cache", "latent", "keys")]
    caches = [key for key in caches if given[key].shape[0] == PAGES]
    for backend in backends(name):
        for key in caches:
            whole = given[key]
            strided = apart(whole) if whole.dim() == 4 else whole.repeat(1, 2, 1)[:, :1]
            assert not strided.is_contiguous() and strided.equal(whole)
            if name.startswith(READS):
                torch.testing.assert_close(
                    run(name, backend, **{key: strided}), run(name, backend), rtol=0, atol=0, equal_nan=True
                )
            else:
                with pytest.raises(ValueError, match=r"has strides .*; expected a contiguous tensor"):
                    run(name, backend, **{key: strided})


def test_pages_of_index_keys_in_bytes_have_no_gaps() -> None:
    gaps = cache(264, torch.uint8)[..., :132]
    for name in ("paged_indexer_logits, FP8", "gather_index_keys, FP8"):
        with pytest.raises(ValueError, match=r"cache has strides .*; expected the bytes of a page in one piece"):
            run(name, "reference", cache=gaps)


def test_no_operation_is_forgotten() -> None:
    paged = {"block_table", "lengths", "cache_seqlens", "kv_indices", "cache", "caches"}
    public = {}
    for name, implementations in OPERATIONS.items():
        module = import_module(f"deepseek_v32.kernels.{implementations[-1].module}")
        public[name] = set(inspect.signature(getattr(module, name)).parameters) & paged
    tested = {name.split(",")[0].split(" of ")[0] for name in VALID}
    assert {name for name, arguments in public.items() if arguments} <= tested


WRONG: dict[str, dict[str, Any]] = {  # values of the second sequence
    "dense_mla_decode": {
        "a page too far": {"block_table": int32([[2, 0, 1], [2**31 - 1, 0, 0]])},
        "a page below 0": {"block_table": int32([[2, 0, 1], [-5, 0, 0]])},
        "longer than the table": {"cache_seqlens": int32([130, 10_000])},
    },
    "paged_mla_decode_h16": {
        "a page too far": {"kv_indices": int32([2, 0, 2**31 - 1, 99])},
        "a page below 0": {"kv_indices": int32([2, 0, -5, 99])},
        "past the list": {"kv_indptr": int32([0, 2, 10_000])},
    },
    "paged_indexer_logits": {
        "a page too far": {"block_table": int32([[2, 0, 1], [2**24, 0, 0]])},
        "a page below 0": {"block_table": int32([[2, 0, 1], [-5, 0, 0]])},
        "longer than the table": {"lengths": int32([130, 10_000])},
    },
    "select_topk_slots": {
        "a narrow table": {"block_table": NARROW, "ends": int32([128, 150])},
        "longer than the scores": {"ends": int32([130, 10_000])},
    },
}
OUTSIDE = [
    pytest.param(name, change, id=f"{name}: {text}") for name, each in WRONG.items() for text, change in each.items()
]


BF16 = ("q", "cache", "q_nope", "q_pe", "ckv_cache", "kpe_cache")


@pytest.mark.gpu
@pytest.mark.parametrize("page", [64, 16])
@pytest.mark.parametrize(("name", "changes"), OUTSIDE)
def test_on_a_gpu_a_wrong_value_spoils_its_own_sequence(
    backend: Backend, name: str, changes: dict[str, Any], page: int
) -> None:
    if backend.name == "reference" or (page == 16 and name != "dense_mla_decode"):
        pytest.skip("a reference raises torch's errors" if page == 64 else "pages have 64 tokens")
    if name == "paged_indexer_logits" and backend.name == "cuda":
        function, valid = VALID["paged_indexer_logits, FP8"]
    else:
        function, valid = VALID[name]
        valid = {key: x.bfloat16() if key in BF16 else x for key, x in valid.items()}
    if page == 16:  # the same memory, in more pages
        valid |= {"cache": valid["cache"].view(-1, page, 1, 576), "cache_seqlens": int32([40, 16])}
        changes = {key: int32([40, 10_000]) if key == "cache_seqlens" else value for key, value in changes.items()}
    results = []
    for arguments in (valid, valid | changes):
        leading, *_ = arguments.values()
        found = backend.run(function, leading, **dict(list(arguments.items())[1:]))
        results.append(found[0] if isinstance(found, tuple) else found)
        torch.cuda.synchronize()
    right, wrong = (result[0].float() for result in results)
    if name == "paged_indexer_logits":
        right, wrong = right[:130], wrong[:130]  # later columns hold anything
    if name == "select_topk_slots":
        assert right.shape == wrong.shape
    else:
        torch.testing.assert_close(wrong, right, rtol=2e-2, atol=2e-2)  # a plan may divide the keys otherwise
