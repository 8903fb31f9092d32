"""Mistakes that speculative decoding invites, each seeded into this engine: one snippet of one function, replaced."""

from deepseek_v32.inference.distributed import batch_sync
from deepseek_v32.inference.engine.drafting.speculation import Speculation
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.sampling import filters, sampler
from deepseek_v32.inference.engine.sampling.noise import DraftNoise
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from simulation.historic_bugs import Bug

DRAFT_BUGS = (
    Bug(
        "rejected",
        "",
        "entries of rejected drafts are kept as if they were the tokens'",
        (Speculation, "commit"),
        "max(request.computed, len(request.tokens) - 1)",
        "start + count",
    ),
    Bug(
        "early",
        "",
        "a page is offered for reuse before its drafts are accepted",
        (Scheduler, "commit"),
        "request.computed if draft_count else start + count",
        "start + count",
    ),
    Bug(
        "following",
        "",
        "a reused page is good for drafts whatever token follows it",
        (PagePool, "find"),
        "drafted += entry is not None",
        "drafted += 1",
    ),
    Bug(
        "behind",
        "",
        "drafts are made although a step has passed without the draft layer",
        (Speculation, "commit"),
        "request.drafted == start",
        "True",
    ),
    Bug(
        "left out",
        "",
        "prompts that the draft layer has left out count as gone over",
        (Speculation, "commit"),
        "entry < gone_over",
        "True",
    ),
    Bug(
        "noise",
        "",
        "the tokens behind drafts are drawn with the first one's noise",
        (sampler, "noise_key"),
        " + row.offset",
        "",
    ),
    Bug(
        "own noise",
        "",
        "drafts are drawn with other noise than the tokens",
        (DraftNoise, "choose"),
        "self.positions + accepted + number",
        "self.positions + accepted + number + 1",
    ),
    Bug(
        "another's",
        "",
        "a request verifies the drafts of another one",
        (Speculation, "commit"),
        "rows[request], batch.draft_tokens",
        "0, batch.draft_tokens",
    ),
    Bug(
        "forgotten",
        "",
        "drafts outlive the tokens that they follow",
        (Speculation, "commit"),
        "self._made = {}",
        "pass",
    ),
    Bug(
        "penalties",
        "",
        "penalties do not count the drafts before a row",
        (filters, "penalise"),
        "if offset and drafts is not None:",
        "if False:",
    ),
    Bug(
        "gap",
        "",
        "drafts behind a wrong one are accepted",
        (sampler, "_count_accepted"),
        ".cumprod(-1)",
        "",
    ),
    Bug(
        "end",
        "",
        "an answer goes on behind its end",
        (Engine, "_postprocess"),
        "break",
        "pass",
    ),
    Bug(
        "prompt",
        "",
        "other ranks do not know the token after a chunk of a prompt",
        (batch_sync, "_is_followed"),
        "draft_tokens is not None",
        "False",
    ),
)
