"""Teacher-forced exact match of every answer's value, by kind of question."""

from collections import Counter

import torch
import torch.nn.functional as F

from .model import Model, rms_norm
from .shape import Mode


@torch.no_grad()
def measure(model: Model, batches: list, mode: Mode, tables, dtype=torch.bfloat16) -> dict:
    """Percentages of right answers by kind: of values, and of whole answers where they say more; and of false refusals.

    Teacher-forced: an answer is right if each of its tokens is the likeliest. Thoughts count with the kind " thinking". In sparse
    mode also, for each layer, how often the selection holds every token of the stated value when the answer's first value token
    is produced. With a draft layer, how often the first and the second drafted token of an answer are what the model itself
    would choose.
    """
    right, whole, asked, refusals = Counter(), Counter(), Counter(), 0
    selected, located = Counter(), 0
    accepted, drafted = Counter(), 0
    device = model.embed.device
    for ids, _, answers in batches:
        length = ids.shape[1] - 1
        tokens = torch.from_numpy(ids.astype("int64")).to(device)
        x, _, _ = model(tokens[:, :-1].flatten(), length, mode, tables, dtype=dtype)
        chosen = model.selected
        spans = [(row, answer) for row, found in enumerate(answers) for answer in found]
        if not spans:
            continue
        at = torch.tensor([row * length + p - 1 for row, a in spans for p in range(a.first, a.last)], device=device)
        produced = model.logits(x[at]).argmax(-1)
        hidden = rms_norm(x, model.norm)
        first, _, _ = model.draft_forward(hidden, tokens[:, 1:].flatten(), length, mode, tables)
        handed = rms_norm(first, model.draft.norm).view(ids.shape[0], length, -1)
        handed = torch.cat((hidden.view_as(handed)[:, :1], handed[:, :-1]), 1).flatten(0, 1)
        second, _, _ = model.draft_forward(handed, tokens[:, 1:].flatten(), length, mode, tables)
        drafts = [
            F.linear(rms_norm(y, model.draft.norm)[at - 1].float(), model.head).argmax(-1) for y in (first, second)
        ]
        agreed = drafts[0] == produced
        drafted += len(at)
        accepted[1] += int(agreed.sum())
        accepted[2] += int((drafts[1] == produced).sum())
        predicted = iter(produced.tolist())
        for row, answer in spans:
            expected = ids[row, answer.first : answer.last].tolist()
            said = [next(predicted) for _ in expected]
            kind = answer.kind + (" thinking" if answer.thinks else "")
            count = answer.end - answer.first
            asked[kind] += 1
            right[kind] += said[:count] == expected[:count]
            whole[kind] += said == expected
            refusals += answer.kind in ("stated", "updated") and said[0] == _refusal(ids, answers)
        if mode.attention == "sparse":
            stated = [(row, a) for row, a in spans if a.stated >= 0]
            located += len(stated)
            if stated:
                starts = torch.tensor([row * length + a.first - 1 for row, a in stated], device=device)
                for layer, index in enumerate(chosen):
                    sets = [set(line) for line in index[starts].tolist()]
                    for (row, a), line in zip(stated, sets, strict=True):
                        selected[layer] += all(row * length + p in line for p in range(a.stated, a.stated_end))
    answerable = sum(count for kind, count in asked.items() if kind.split()[0] in ("stated", "updated"))
    result = {kind: _percent(right[kind], asked[kind]) for kind in sorted(asked)}
    result |= {f"{kind} whole": _percent(whole[kind], asked[kind]) for kind in sorted(asked)}
    result |= {
        "false_refusals": _percent(refusals, answerable),
        "questions": dict(asked),
    }
    if located:
        result["selected_by_layer"] = [_percent(selected[layer], located) for layer in range(len(model.layers))]
    if drafted:
        result["drafts_agree"] = [_percent(accepted[n], drafted) for n in (1, 2)]
    return result


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def _refusal(ids, answers) -> int:
    """The first token of a refusal, from any such answer of the batch; -1 if there is none."""
    return next(
        (int(ids[row, a.first]) for row, found in enumerate(answers) for a in found if a.kind == "unanswerable"), -1
    )
