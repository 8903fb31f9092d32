"""Compares the Triton kernels with plain torch and times training steps: `train_demo.py --check`."""

import time
from functools import partial

import torch

from . import data
from . import sparse_attention as kernels
from .schedule import Step


def _error(result, expected) -> float:
    return ((result.float() - expected.float()).norm() / expected.float().norm()).item()


def check_kernels(device, length: int = 300, topk: int = 64, dtype=torch.bfloat16) -> dict[str, float]:
    """Relative errors of scores, output and both gradients against fp32 torch on the same rounded inputs."""
    generator = torch.Generator(device=device).manual_seed(0)
    normal = partial(torch.randn, device=device, generator=generator)
    iq, ik = normal(length, 16, 128).to(dtype), normal(length, 128).to(dtype)
    weights = normal(length, 16)
    scores = kernels.index_scores(iq, ik, weights)
    expected_scores = kernels.index_scores(iq.cpu(), ik.cpu(), weights.cpu()).to(device)
    causal = expected_scores > float("-inf")
    index = kernels.select_topk(expected_scores, topk)
    q, kv, grad = (normal(*shape).to(dtype) for shape in ((length, 16, 576), (length, 576), (length, 16, 512)))
    results = {}
    for name, attend in (("kernel", kernels.sparse_attention), ("reference", kernels._reference)):
        inputs = [t.clone().requires_grad_() for t in ((q, kv) if name == "kernel" else (q.float(), kv.float()))]
        out = attend(*inputs, index, 0.1)
        out.backward(grad.to(out.dtype))
        results[name] = [out.detach(), *(t.grad for t in inputs)]
    names = ("out", "grad q", "grad kv")
    errors = {n: _error(a, b) for n, a, b in zip(names, results["kernel"], results["reference"], strict=True)}
    errors["scores"] = _error(scores[causal], expected_scores[causal])
    errors["mask"] = float(((scores > float("-inf")) != causal).sum())
    return errors


def check(trainer) -> None:
    errors = check_kernels(trainer.device)
    print({name: f"{value:.2e}" for name, value in errors.items()}, flush=True)
    assert all(value < 2e-2 for value in errors.values()), "a kernel disagrees with plain torch"
    steps = [Step("dense", n, 0.0) for n in (512, 4096, 16384)] + [Step("dense", 16384, 0.0, indexer=True)]
    steps += [Step("indexer", 16384, 0.0, indexer=True)]
    steps += [
        Step("sparse", n, 0.0, topk=k, indexer=True, sparse=True) for n, k in ((4096, 128), (16384, 128), (16384, 256))
    ]
    rows = [(s.length, trainer.args.tokens // s.length) for s in steps]
    batches = data.Batches(trainer.tokenizer_path, 0, rows, 4)
    for number, ids, classes in batches:
        began = time.time()
        trainer.train_step(steps[number], ids, classes)
        torch.cuda.synchronize()
        first = time.time() - began
        began = time.time()
        for _ in range(5):
            trainer.train_step(steps[number], ids, classes)
        torch.cuda.synchronize()
        each = (time.time() - began) / 5
        speed = f"{each * 1e3:.0f} ms, {trainer.args.tokens / each / 1e6:.2f} M tokens/s"
        print(f"{steps[number]}: first {first:.1f} s, then {speed}", flush=True)
    batches.close()
