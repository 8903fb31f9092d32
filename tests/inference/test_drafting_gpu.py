"""Drafting on a Hopper GPU: CUDA graphs of verification and of the MTP layer's passes against the same steps without graphs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deepseek_v32.inference.engine.running.decode_graph import can_capture
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.checkpoint.config_json import read_config
from deepseek_v32.model.checkpoint.load import load_model
from support.drafting import Driver, make_requests, make_runner
from tiny_model.checkpoint import write_checkpoint

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sequences", [3, 5])  # of the graphs' buckets: 3 requests fill one, or leave rows of padding
def test_graphs_draft_as_eager_passes_do(sequences: int, tmp_path: Path) -> None:
    config = replace(read_config(DEMO), num_nextn_predict_layers=1)
    write_checkpoint(tmp_path, config, "fp8")
    model = load_model(tmp_path, "fp8", device="cuda", mtp=True)
    assert can_capture(model)
    drafts, logits = [], []
    for graphs in (False, True):
        driver = Driver(make_runner(model, sequences, graphs), make_requests(config.vocab_size))
        driver.prompts(40, 4)
        made, rows = [], []
        for _ in range(5):  # the first ones have no graphs; every request has other accepted drafts
            answers = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]]
            made.append(driver.verify([2, 0, 1], answers, [4, 1, 0], 4))
            rows.append(driver.logits.clone())
        drafts.append(torch.stack(made))
        logits.append(torch.cat(rows))
    # The bound on the context, which is a bucket's, may change how keys are split, and then sums round apart.
    assert torch.nn.functional.cosine_similarity(*logits).min() > 0.99
    assert (drafts[0] == drafts[1]).float().mean() > 0.75
