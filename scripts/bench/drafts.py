"""How often drafts are right, by place, and what they bring, on the demo's test conversations: tables, then one line of JSON.

    python scripts/bench/drafts.py --precision exact fp8              # acceptance, and whether the answers are the same
    python scripts/bench/drafts.py --speed 1 16 --tokens 120          # tokens a second with 0 to 4 drafts and `auto`
    python scripts/bench/drafts.py --speed 1 --clock cpu --threads 1  # on a busy machine: seconds of the processor
    python scripts/bench/drafts.py --speed 1 --numbers 0 auto --fixed --tokens 1000 --right 0  # drafts that are never right

Acceptance is that of the model's own greedy answers to questions of test conversations, thoughts and calls of functions among
them: a place's share of the steps in which its draft and all before it were the model's own tokens. In `exact` precision, answers
must be those without drafts; the exit status is 1 if one is not. In `fp8`, logits depend on a step's shape, and close calls too.

Speed counts what follows each answer's first token. With --fixed all answers go on for --tokens tokens, whatever they say after
their end; without, they end by themselves. The numbers of drafts take turns in one engine, so that a machine whose speed changes
wrongs none. `auto` begins each turn as in a new engine. --right replaces drafts by wrong ones, all but that share of them.
"""

import argparse
import copy
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.config import MAX_DRAFT_TOKENS
from deepseek_v32.inference.engine.drafting.policy import DraftPolicy
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.config import Precision

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from demo_model.evaluation.chatting import CHAT_CELLS, ChatCell, questions

DRAFTS = [*map(str, range(MAX_DRAFT_TOKENS + 1)), "auto"]
THOUGHTS = (("thinking", 1.0), ("functions", 0.0))
CELLS = CHAT_CELLS | {"1K two hops": ChatCell(2_700, ("two hops",), THOUGHTS)}


def prompts(llm: LLM, count: int, cells: list[str]) -> list[list[int]]:
    """The last questions of this many test conversations of each cell."""
    found = []
    for name in cells:
        for seed in _numbers():
            asked = questions(llm, CELLS[name], CELLS[name].conversation(f"drafts {seed}"))
            found += [each.prompt for each in asked[-1:]]
            if len(found) % count == 0 and asked:
                break
    return found


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def open_engine(arguments: argparse.Namespace, precision: Precision, sequences: int, **options: Any) -> LLM:
    """With the MTP layer."""
    try:
        return LLM(
            arguments.model,
            device=arguments.device,
            precision=precision,
            max_model_len=8192,
            max_sequences=sequences,
            page_count=arguments.pages,
            **options,
        )
    except ValueError as error:  # an argument that the user can correct
        raise SystemExit(str(error)) from None


def acceptance(arguments: argparse.Namespace, precision: Precision) -> dict[str, Any]:
    """Of 1 to 4 drafts: the share of right ones by place, tokens a step, and how many answers differ from those without drafts."""
    greedy = SamplingParams(temperature=0, max_tokens=arguments.tokens)
    # One engine for all numbers, so that prompts stay in its caches.
    llm = open_engine(arguments, precision, 16, speculative_tokens=MAX_DRAFT_TOKENS)
    asked = prompts(llm, arguments.conversations or 6, arguments.cells)
    sizes = {"max_model_len": 8192, "max_sequences": 16, "page_count": arguments.pages}
    plain = answered(
        LLM.from_model(llm.model, llm.config, precision=precision, device=str(llm.device), **sizes), asked, greedy
    )
    results: dict[str, Any] = {"answers": len(plain), "tokens": sum(map(len, plain))}
    print(f"{precision:6} {len(plain)} answers, {results['tokens']} tokens", flush=True)
    for count in range(1, MAX_DRAFT_TOKENS + 1):
        llm.engine.scheduler.speculation.policy = DraftPolicy(count)
        before = llm.stats()
        answers = answered(llm, asked, greedy)
        after = llm.stats()
        tried = _differences(before.drafted_tokens, after.drafted_tokens)[:count]
        right = _differences(before.accepted_tokens, after.accepted_tokens)[:count]
        shares = [round(r / t, 4) for r, t in zip(right, tried, strict=True)]
        differing = sum(one != other for one, other in zip(plain, answers, strict=True))
        tokens = round(1 + sum(right) / tried[0], 3)
        results[str(count)] = {"right": shares, "tokens_a_step": tokens, "verified": tried[0], "differ": differing}
        print(
            f"{precision:6} {count} drafts: {shares}, {tokens} tokens a step with drafts; {differing} answers differ",
            flush=True,
        )
    return results


def answered(llm: LLM, asked: list[list[int]], params: SamplingParams) -> list[list[int]]:
    """The answers' tokens. RuntimeError if a request failed, as it does on a GPU whose memory other programs fill."""
    answers = llm.generate(asked, params)
    for each in answers:
        if each.error is not None:
            raise RuntimeError(each.error)
    return [each.token_ids for each in answers]


def _differences(before: list[int], after: list[int]) -> list[int]:
    return [two - one for one, two in zip(before, after, strict=True)]


def decode(
    llm: LLM, group: list[list[int]], params: SamplingParams, clock: Callable[[], float]
) -> tuple[list[list[int]], int, float]:
    """(answers, tokens, seconds), where the last two begin once each answer has a token."""
    engine = llm.engine
    requests = [engine.add_request(prompt, params) for prompt in group]
    while not all(request.output_count for request in requests):
        _advance(engine)
    ready, began = sum(request.output_count for request in requests), clock()
    while engine.has_work:
        _advance(engine)
    answers = [list(request.tokens[len(request.prompt) :]) for request in requests]
    return answers, sum(map(len, answers)) - ready, clock() - began


def _advance(engine: Engine) -> None:
    for delta in engine.step():
        if delta.completion is not None and delta.completion.error is not None:
            raise RuntimeError(delta.completion.error)


def spoil(engine: Engine, right: float) -> None:
    """Replace drafts by wrong ones before each step that verifies them, all but a share of them."""
    drafts, schedule, numbers = engine.runner.drafts, engine.scheduler.schedule, itertools.count()
    wrong = (torch.rand(1024, *drafts.shape, generator=torch.Generator().manual_seed(0)) >= right).to(drafts)

    def spoiled() -> Batch:
        batch = schedule()
        if batch.draft_counts:
            with torch.inference_mode():
                drafts.bitwise_xor_(
                    wrong[next(numbers) % len(wrong)]
                )  # ids stay below the size of the vocabulary, which is even
        return batch

    engine.scheduler.schedule = spoiled  # type: ignore[method-assign]


def speed(arguments: argparse.Namespace, precision: Precision, batch: int) -> dict[str, Any]:
    """Decoded tokens a second of `batch` answers side by side, by number of drafts: medians over rounds in turns."""
    clock: Callable[[], float] = time.process_time if arguments.clock == "cpu" else time.perf_counter
    ranks = {"tensor_parallel_size": arguments.tensor_parallel_size} if arguments.tensor_parallel_size else {}
    # Pages without the draft layer's entries must not be found by answers with drafts.
    with open_engine(arguments, precision, batch, reuse_pages=False, **ranks) as llm:
        speculation = llm.engine.scheduler.speculation
        policies: dict[str, DraftPolicy | None] = {"0": None, "auto": speculation.policy}
        policies |= {str(count): DraftPolicy(count) for count in range(1, MAX_DRAFT_TOKENS + 1)}
        count = arguments.conversations or max(2, -(-batch // len(arguments.cells)))
        asked = prompts(llm, count, arguments.cells)
        if len(asked) < batch:
            raise SystemExit(f"--conversations is {count}; expected enough for {batch} answers at a time")
        if arguments.right is not None:
            spoil(llm.engine, arguments.right)
        groups = [asked[i : i + batch] for i in range(0, len(asked) - batch + 1, batch)]
        params = SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=arguments.fixed)
        rates: dict[str, list[float]] = {name: [] for name in arguments.numbers}
        plain: list[list[int]] = []
        differing = dict.fromkeys(rates, 0)
        verified, right = ({name: [0] * MAX_DRAFT_TOKENS for name in rates} for _ in range(2))
        for round_number in range(arguments.rounds + 1):  # round 0 captures graphs
            for name in rates:
                answers: list[list[int]] = []
                tokens, seconds, before = 0, 0.0, llm.stats()
                for group in groups:
                    speculation.policy = copy.deepcopy(policies[name])
                    own, decoded, took = decode(llm, group, params, clock)
                    answers, tokens, seconds = answers + own, tokens + decoded, seconds + took
                after = llm.stats()
                for sums, one, two in (
                    (verified, before.drafted_tokens, after.drafted_tokens),
                    (right, before.accepted_tokens, after.accepted_tokens),
                ):
                    sums[name] = [total + each for total, each in zip(sums[name], _differences(one, two), strict=True)]
                plain = plain or answers
                differing[name] += sum(one != other for one, other in zip(plain, answers, strict=True))
                if round_number:
                    rates[name].append(tokens / seconds)
                place = f"{precision} B={batch} round {round_number} of {arguments.rounds}"
                print(f"{place}, {name} drafts: {tokens} tokens in {seconds:.1f} s", file=sys.stderr, flush=True)
    found: dict[str, Any] = {}
    for name, each in rates.items():
        rate, first = statistics.median(each), rates[arguments.numbers[0]]
        shares = [round(r / t, 3) for r, t in zip(right[name], verified[name], strict=True) if t]
        ratios = [one / zero for one, zero in zip(each, first, strict=True)]
        found[name] = {"tokens_per_second": round(rate, 1), "times_plain": round(statistics.median(ratios), 3)}
        found[name] |= {"each": [round(ratio, 3) for ratio in ratios], "right": shares, "differ": differing[name]}
        print(f"B={batch} {name:>4} drafts: {rate:8.1f} tokens/s, {found[name]['times_plain']:.3f} x plain, right {shares}, "
              f"{differing[name]} of {len(plain) * (arguments.rounds + 1)} answers differ", flush=True)  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="the demo's format (default: the shipped one)")
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", nargs="+", default=["exact"], choices=("exact", "bf16", "fp8"))
    parser.add_argument("--conversations", type=int, help="of each cell; 6, for speed 2")
    parser.add_argument("--cells", nargs="+", default=list(CHAT_CELLS), choices=CELLS, metavar="CELL")
    parser.add_argument("--tokens", type=int, default=400, help="of an answer at most")
    parser.add_argument("--fixed", action="store_true", help="for speed: exactly --tokens tokens in every answer")
    parser.add_argument(
        "--speed", type=int, nargs="+", default=[], metavar="B", help="measure speed with B answers at a time"
    )
    parser.add_argument(
        "--numbers",
        nargs="+",
        default=DRAFTS,
        choices=DRAFTS,
        metavar="K",
        help="for speed: of drafts; first 0 (default: all)",
    )
    parser.add_argument(
        "--right", type=float, help="for speed: the share of drafts that stay as they are (default: all)"
    )
    parser.add_argument("--tensor-parallel-size", type=int, help="for speed: GPUs")
    parser.add_argument("--rounds", type=int, default=4, help="for speed, after one that is not measured")
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--threads", type=int, default=None, help="threads that PyTorch uses on a CPU")
    parser.add_argument("--pages", type=int, default=2048)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    results: dict[str, Any] = {
        "model": str(arguments.model),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    for precision in arguments.precision:
        if arguments.speed:
            results[precision] = {f"B={batch}": speed(arguments, precision, batch) for batch in arguments.speed}
        else:
            results[precision] = acceptance(arguments, precision)
    print(json.dumps(results))
    exact = [each for each in results.get("exact", {}).values() if isinstance(each, dict)]
    rows = [row for each in exact for row in (each.values() if arguments.speed else [each])]
    return int(any(row["differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
