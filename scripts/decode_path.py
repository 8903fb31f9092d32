"""List the files that one HTTP decode step executes, in the order of their first call, with their line counts.

    python scripts/decode_path.py                     # the demo, on a CPU or a GPU
    python scripts/decode_path.py --device cuda --precision fp8 --markdown

Starts `deepseek-v32 serve`, asks /v1/completions twice for a prompt of 257 token ids, of which the second request finds 256 in the
cache, so that all its steps are decodes with selection. Notes each file of the package in which a function runs from the second
request's arrival to its last token, or while a CUDA graph is captured. Start-up and imports do not count. For a CUDA library that
is called, its launcher and every header of this repository that it includes count too.
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
seen, on, captures = {}, [False], [0]
def note(frame, event, argument):
    code = frame.f_code
    if code.co_name == "_record" and code.co_filename.endswith("captured_step.py"):
        captures[0] += {"call": 1, "return": -1}.get(event, 0)
    if event == "call" and (on[0] or captures[0]) and code.co_flags & 1 and "deepseek_v32" in frame.f_globals.get("__name__", ""):
        seen.setdefault(code.co_filename, set()).update(each for each in code.co_consts if isinstance(each, str))
signal.signal(signal.SIGUSR1, lambda *_: on.__setitem__(0, True))
def write(*_):
    on[0] = False
    with open(out + ".part", "w") as file:
        json.dump({name: sorted(texts) for name, texts in seen.copy().items()}, file)
    os.rename(out + ".part", out)
signal.signal(signal.SIGUSR2, write)
threading.setprofile(note)
sys.setprofile(note)
module, _, function = entry.partition(":")
getattr(importlib.import_module(module), function)()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="default: a GPU if there is one")
    parser.add_argument("--precision", help="default: the device's")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/architecture.md: by folder")
    arguments = parser.parse_args()
    options = [f"--{name}={getattr(arguments, name)}" for name in ("device", "precision") if getattr(arguments, name)]
    paths = with_kernel_sources(executed_files(options))
    counts = {path.relative_to(ROOT): len(path.read_bytes().splitlines()) for path in paths}
    if arguments.markdown:
        folders = dict.fromkeys(path.parent for path in counts)
        for folder in folders:
            files = [f"{path.name} {count}" for path, count in counts.items() if path.parent == folder]
            lines = sum(count for path, count in counts.items() if path.parent == folder)
            print(f"| {folder}/ | {lines:,} | {', '.join(files)} |")
    else:
        for path, count in counts.items():
            print(f"{count:6}  {path}")
    print(json.dumps({"files": len(counts), "lines": sum(counts.values())}))


def executed_files(options: list[str]) -> dict[Path, list[str]]:
    """Serve the demo, send the request, and return the executed files with the text constants of their functions."""
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
                found: dict[str, list[str]] = json.loads(out.read_text())
            finally:
                server.terminate()
    paths = {Path(name).resolve(): texts for name, texts in found.items()}
    return {path: texts for path, texts in paths.items() if path.suffix == ".py" and path.is_relative_to(ROOT)}


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


def with_kernel_sources(executed: dict[Path, list[str]]) -> list[Path]:
    """The executed files, each module of kernels/cuda followed by the sources of the libraries that its functions name."""
    libraries = {path.parent.name: path for path in (ROOT / "kernels" / "cuda").glob("*/launch.cu")}
    found: dict[Path, None] = {}
    for path, texts in executed.items():
        found[path] = None
        if path.parent == ROOT / "kernels" / "cuda":
            for name in libraries.keys() & set(texts):
                add_source(libraries[name], found)
    return list(found)


def add_source(path: Path, found: dict[Path, None]) -> None:
    if path not in found:
        found[path] = None
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            add_source(Path(os.path.normpath(path.parent / name)), found)


if __name__ == "__main__":
    main()
