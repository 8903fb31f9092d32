"""How well a model remembers: teacher-forced exact match of every answer's value, by kind of question."""

import multiprocessing
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from . import data
from .model import Mode, Model


@dataclass(frozen=True)
class Cell:
    """One set of conversations: `split` names and values, `wording` phrasings (those of training when not told otherwise)."""

    length: int
    conversations: int
    split: str = "validation"
    wording: str = "train"
    questions: int | None = None
    seed: str = "measure"


def _make(job):
    path, cell, chunk, rows = job
    tokenizer = Tokenizer.from_file(str(path))
    seed = f"{cell.seed} {cell.split} {cell.wording} {chunk}"
    return data.batch(
        tokenizer, seed, cell.length, rows, locate=True, thoughts=False, split=cell.split, wording=cell.wording,
        questions=cell.questions,
    )  # fmt: skip


def conversations(tokenizer: Path, cells: list[Cell], workers: int, tokens: int = 65536) -> dict[Cell, list]:
    """Batches of `tokens` for each cell, made by worker processes."""
    jobs = []
    for cell in cells:
        rows = max(1, tokens // cell.length)
        jobs += [(tokenizer, cell, chunk, rows) for chunk in range(-(-cell.conversations // rows))]
    if workers <= 1:
        made = [_make(job) for job in jobs]
    else:
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            made = pool.map(_make, jobs, chunksize=1)
    batches: dict[Cell, list] = {cell: [] for cell in cells}
    for job, result in zip(jobs, made, strict=True):
        batches[job[1]].append(result)
    return batches


@torch.no_grad()
def measure(model: Model, batches: list, mode: Mode, tables, dtype=torch.bfloat16) -> dict:
    """Shares in percent: recall (told), changed, not_told, false_refusals; and, when sparse, how often each layer's selection
    holds every token of the told value at the moment its first token is produced."""
    right, asked, refusals = Counter(), Counter(), 0
    selected, located = Counter(), 0
    device = model.embed.device
    for ids, _, answers in batches:
        length = ids.shape[1] - 1
        tokens = torch.from_numpy(ids[:, :-1].astype("int64")).to(device)
        x, _, _ = model(tokens.flatten(), length, mode, tables, dtype=dtype)
        spans = [(row, answer) for row, found in enumerate(answers) for answer in found]
        if not spans:
            continue
        at = torch.tensor([row * length + p - 1 for row, a in spans for p in range(a.first, a.end)], device=device)
        refusal = _refusal(ids, answers)
        predicted = iter(model.logits(x[at]).argmax(-1).tolist())
        for row, answer in spans:
            wanted = ids[row, answer.first : answer.end].tolist()
            got = [next(predicted) for _ in wanted]
            asked[answer.kind] += 1
            right[answer.kind] += got == wanted
            refusals += answer.kind != "not_told" and got[0] == refusal
        if mode.attention == "sparse":
            told = [(row, a) for row, a in spans if a.told >= 0]
            located += len(told)
            if told:
                first = torch.tensor([row * length + a.first - 1 for row, a in told], device=device)
                for layer, index in enumerate(model.selected):
                    chosen = [set(line) for line in index[first].tolist()]
                    for (row, a), line in zip(told, chosen, strict=True):
                        selected[layer] += all(row * length + p in line for p in range(a.told, a.told_end))
    share = lambda kind: round(100 * right[kind] / asked[kind], 2) if asked[kind] else None  # noqa: E731
    told = asked["told"] + asked["changed"]
    result = {
        "recall": share("told"), "changed": share("changed"), "not_told": share("not_told"),
        "false_refusals": round(100 * refusals / told, 2) if told else None, "questions": dict(asked),
    }  # fmt: skip
    if located:
        result["selected_by_layer"] = [round(100 * selected[layer] / located, 2) for layer in range(len(model.layers))]
    return result


def _refusal(ids, answers) -> int:
    """The first token of "something I was not told", read off any such answer of the batch; -1 if it has none."""
    return next(
        (int(ids[row, a.first]) for row, found in enumerate(answers) for a in found if a.kind == "not_told"), -1
    )
