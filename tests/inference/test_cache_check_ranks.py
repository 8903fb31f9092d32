"""--check-cache on two ranks: wrong entries in one rank's caches end the request on rank 0 with an error."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.forked_ranks import run_ranks
from tiny_model.checkpoint import TINY, write_checkpoint

pytestmark = pytest.mark.heavy

# Only rank 1 spoils its caches, once, while the first request decodes or while its prompt is computed.
PROGRAM = """
import json, os, sys, tempfile
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.running import runner
from deepseek_v32.model import indexer

path, tempfile.tempdir, fault = sys.argv[1:]
write, run, armed = indexer.write_index_cache, runner.Runner.run, fault == "none"

def write_or_skip(keys, *arguments, **options):
    global armed
    if armed and fault == "stale index key" and len(keys) > 100:
        armed = False
    else:
        write(keys, *arguments, **options)

def spoil_and_run(self, batch, *arguments):
    global armed
    if batch.requests[0].id == 2:
        if batch.starts[0] == 0:
            armed = True
        if armed and fault == "byte of a latent" and batch.starts[0] > 135:
            self.caches[1].latent[batch.requests[0].cache.pages[0], 3] += 1
            armed = False
    return run(self, batch, *arguments)

if os.environ["RANK"] == "1":
    indexer.write_index_cache, runner.Runner.run = write_or_skip, spoil_and_run
runner.can_capture = lambda model: fault == "byte of a latent"  # decodes as in graphs, launched ahead
llm = LLM(path, device="cpu", page_count=16, max_model_len=256, max_batch_tokens=130, check_cache=True)
params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
prompts = [[(i * step) % 997 for i in range(count)] for step, count in ((7, 130), (11, 70))]
assert all(each.error is None for each in llm.generate(prompts, params))
new = [[(i * step) % 991 for i in range(count)] for step, count in ((3, 130), (5, 70))]
print(json.dumps([[each.finish_reason, each.error, len(each.token_ids)] for each in llm.generate(new, params)]))
assert all(each.error is None for each in llm.generate(new, params))
"""


@pytest.mark.parametrize("fault", ["byte of a latent", "stale index key"])
def test_a_fault_of_the_other_rank(fault: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tiny", replace(TINY, num_hidden_layers=2), "fp32")
    # This path is too long for the address of the ranks' socket.
    reports = tmp_path / f"reports{'-' * 90}"
    reports.mkdir()
    ended = run_ranks(2, PROGRAM, tmp_path / "tiny", reports, fault)
    assert [each.code for each in ended] == [0, 0], ended[0].err + ended[1].err
    (reason, error, count), (other_reason, _, other_count) = json.loads(ended[0].out)
    assert (reason, other_reason, other_count) == ("error", "length", 40)
    assert "the cache check failed at position" in error and count < (40 if fault == "byte of a latent" else 1)
    [report] = [json.loads(path.read_text()) for path in reports.iterdir()]
    assert report["cache"] == fault.split()[-1].replace("key", "index") and report["expected"] != report["found"]
