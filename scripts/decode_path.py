"""List the files that one HTTP decode step executes, in the order of their first call, with their line counts.

    python scripts/decode_path.py                     # the demo, on a CPU or a GPU
    python scripts/decode_path.py --device cuda --precision fp8 --markdown

Starts `deepseek-v32 serve`, asks /v1/completions twice for a prompt of 257 token ids, of which the second request finds 256 in the
cache, so that all its steps are decodes with selection. Notes each file of the package in which a function runs from the second
request's arrival to its last token, or while a CUDA graph that is replayed then was captured, and the kernels that a profiler sees
on the GPU meanwhile.
Start-up and imports do not count. The sources of a launched kernel of ours are its library's launcher and the headers that this
includes, without headers of kernels that are not launched and what only they include.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Runs in the server's process: argv is the file to write, then the command line. SIGUSR1 begins to note files, SIGUSR2 writes them.
TRACER = """
import importlib, json, os, signal, sys, threading
out, entry, sys.argv[1:] = sys.argv[1], sys.argv[2], sys.argv[3:]
files, on, profiles, recording, graphs = {}, [False], [], [], {}  # graphs: what ran while each was captured
def note(frame, event, argument):
    code = frame.f_code
    if code.co_filename.endswith("captured_step.py") and code.co_name in ("_record", "replay"):
        graph = id(frame.f_locals["parts"])
        if code.co_name == "replay":
            files.update(graphs.get(graph, {}) if on[0] else {})
        elif event == "call":
            recording.append(graphs.setdefault(graph, {}))
        elif event == "return":
            recording.pop()
    if event == "call" and code.co_flags & 1 and "deepseek_v32" in (frame.f_globals.get("__name__") or ""):
        for seen in [*recording, *([files] if on[0] else [])]:
            seen[code.co_filename] = None
def begin(*_):
    import torch
    if torch.cuda.is_initialized():
        profiles.append(torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]))
        profiles[0].start()
    on[0] = True
def write(*_):
    on[0] = False
    for profile in profiles:
        profile.stop()
    kernels = {event.name for profile in profiles for event in profile.events()}
    with open(out + ".part", "w") as file:
        json.dump([list(files), list(kernels)], file)
    os.rename(out + ".part", out)
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, write)
threading.setprofile(note)
sys.setprofile(note)
module, _, function = entry.partition(":")
getattr(importlib.import_module(module), function)()
"""
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s+)?(\w+)\(")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="default: a GPU if there is one")
    parser.add_argument("--precision", help="default: the device's")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/architecture.md: by folder")
    arguments = parser.parse_args()
    options = [f"--{name}={getattr(arguments, name)}" for name in ("device", "precision") if getattr(arguments, name)]
    files, kernels = run_server(options)
    paths = files + kernel_sources(kernels)
    counts = {path.relative_to(ROOT): len(path.read_bytes().splitlines()) for path in paths}
    if arguments.markdown:
        folders = dict.fromkeys(path.parent for path in counts)
        for folder in folders:
            own = {path.name: count for path, count in counts.items() if path.parent == folder}
            print(f"| {folder}/ | {sum(own.values()):,} | {', '.join(f'{name} {own[name]}' for name in own)} |")
    else:
        for path, count in counts.items():
            print(f"{count:6}  {path}")
    print(json.dumps({"files": len(counts), "lines": sum(counts.values())}))


def run_server(options: list[str]) -> tuple[list[Path], set[str]]:
    """Serve the demo, send the request, and return the executed files and the names of the launched kernels."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["deepseek-v32"]
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        out = Path(folder) / "files.json"
        command = [sys.executable, "-c", TRACER, str(out), entry, "serve", f"--port={port}", "--no-chat", *options]
        with open(Path(folder) / "log", "w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
            try:
                wait_for(server, f"http://127.0.0.1:{port}/health", Path(folder) / "log")
                complete(port, 1)
                server.send_signal(signal.SIGUSR1)
                complete(port, 3)
                server.send_signal(signal.SIGUSR2)
                while not out.exists():
                    time.sleep(0.1)
                files, kernels = json.loads(out.read_text())
            finally:
                server.terminate()
    paths = [path for path in map(Path.resolve, map(Path, files)) if path.suffix == ".py" and path.is_relative_to(ROOT)]
    # "void mla::plan_kernel<(mla::Lookup)0>(mla::Keys, …)"
    return paths, {found[1] for name in kernels if (found := re.search(r"(\w+)[<(]", name))}


def complete(port: int, tokens: int) -> None:
    body = {"prompt": [5] * 257, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    address, headers = f"http://127.0.0.1:{port}/v1/completions", {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=300
    ) as reply:
        reply.read()


def wait_for(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"the server ended with {server.returncode} before it answered: {log.read_text()[-2000:]}")


def kernel_sources(launched: set[str]) -> list[Path]:
    """Return the sources of the libraries whose own kernels include a launched one."""
    found: dict[Path, None] = {}
    for launcher in sorted((ROOT / "kernels" / "cuda").glob("*/launch.cu")):
        if any(launched.intersection(KERNEL.findall(path.read_text())) for path in launcher.parent.iterdir()):
            add_source(launcher, launched, found)
    return list(found)


def add_source(path: Path, launched: set[str], found: dict[Path, None], used: bool = True) -> None:
    """Add a source, unless none of its kernels is launched, and the headers that it includes; used: whether what includes it is."""
    text = path.read_text(encoding="utf-8")
    if kernels := KERNEL.findall(text):
        used = path.name == "launch.cu" or bool(launched.intersection(kernels))
    if used and path in found:
        return
    if used:
        found[path] = None
    for name in INCLUDE.findall(text):
        add_source(Path(os.path.normpath(path.parent / name)), launched, found, used)


if __name__ == "__main__":
    main()
