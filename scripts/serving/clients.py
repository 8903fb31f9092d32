"""Real clients against a server of the demo model: a table of which version was tried, what it did, and whether that worked.

    python scripts/serving/clients.py [--install FOLDER] [--url URL] [NAME ...]

With --install, every client named gets an environment of its own in FOLDER (pip or npm), unless it is there; without it, Python's
clients are taken from this environment. What cannot be installed is "not tried", with the reason. Exits with status 1 if a client
has failed.
Codex and Claude Code send 10,000 tokens and more, which take minutes on a busy CPU.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this package

from serving.client import server
from serving.python_clients import USES

SECONDS = 600  # for one client
TASK = """
task: here
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["."], max_gen_toks: 8}
metric_list: [{metric: exact_match}]
"""


@dataclass(frozen=True)
class Command:
    """A client that is a program. In its arguments, $URL and $MODEL stand for the server's."""

    package: str  # of pip, or of npm if it is in `NPM`
    program: str
    arguments: Sequence[str]
    does: str
    files: Sequence[tuple[str, str]] = ()  # in its home, which is also its working directory
    environment: Sequence[tuple[str, str]] = ()
    extras: Sequence[str] = ()  # other packages


NPM = ("@openai/codex", "@anthropic-ai/claude-code", "opencode-ai", "promptfoo")
_CODEX = """model = "$MODEL"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "$URL/v1"
wire_api = "responses"
"""
_OPENCODE = {
    "model": "here/$MODEL", "small_model": "here/$MODEL", "share": "disabled", "autoupdate": False,
    "provider": {"here": {
        "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "$URL/v1", "apiKey": "any"},
        "models": {"$MODEL": {"limit": {"context": 32768, "output": 64}}},
    }},
}  # fmt: skip
_PROMPTFOO = {
    "prompts": ["{{question}}"],
    "providers": [{"id": "openai:chat:$MODEL", "config": {"apiBaseUrl": "$URL/v1", "apiKey": "any", "max_tokens": 20}}],
    "tests": [{"vars": {"question": "Which animal is it?"}}],
}
_AIDER = (
    "--no-git",
    "--yes",
    "--no-check-update",
    "--no-show-model-warnings",
    "--analytics-disable",
    "--map-tokens",
    "0",
    "--no-show-release-notes",
)
_LM_EVAL = "model=$MODEL,base_url=$URL/v1/completions,tokenizer_backend=remote,num_concurrent=2,max_length=512"
COMMANDS = (
    Command(
        "aider-chat", "aider", ("--model", "openai/$MODEL", "--message", "Say hi.", *_AIDER), "a message",
        environment=(("OPENAI_API_BASE", "$URL/v1"), ("OPENAI_API_KEY", "any"), ("LITELLM_LOCAL_MODEL_COST_MAP", "True")),
    ),
    Command(
        "lm_eval", "lm_eval",
        ("--model", "local-completions", "--include_path", ".", "--tasks", "here", "--model_args", _LM_EVAL),
        "a task, with the server's tokenizer", (("here.yaml", TASK), ("data.jsonl", '{"question": "Hi", "answer": "Hi"}\n')),
        (("HF_HUB_OFFLINE", "1"), ("HF_DATASETS_OFFLINE", "1")), ("lm_eval[api]",),
    ),
    Command(
        "@openai/codex", "codex", ("exec", "--skip-git-repo-check", "Say hi."), "exec, with its tools",
        ((".codex/config.toml", _CODEX),),
    ),
    Command(
        "@anthropic-ai/claude-code", "claude", ("-p", "Say hi.", "--tools", "Read", "--system-prompt", "Be brief."),
        "print, with a tool and thinking",
        environment=(
            ("ANTHROPIC_BASE_URL", "$URL"), ("ANTHROPIC_API_KEY", "any"), ("ANTHROPIC_MODEL", "$MODEL"),
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "$MODEL"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ),
    ),
    Command(
        "opencode-ai", "opencode", ("run", "Say hi."), "run, with its tools", (("opencode.json", json.dumps(_OPENCODE)),),
        (("OPENCODE_DISABLE_MODELS_FETCH", "1"),),
    ),
    Command(
        "promptfoo", "promptfoo", ("eval", "--no-cache", "--no-share"), "an evaluation",
        (("promptfooconfig.json", json.dumps(_PROMPTFOO)),),
    ),
)  # fmt: skip
_EXTRAS = {
    "pydantic-ai-slim": ["pydantic-ai-slim[openai]"],
    "langgraph": ["langgraph", "langchain-openai"],
    "inspect-ai": ["inspect-ai", "openai"],
}


def _programs(folder: Path | None, package: str, wanted: Sequence[str]) -> Path:
    """The folder with the client's programs, which are installed there unless they are. Raises RuntimeError with the reason."""
    is_npm = package in NPM
    if folder is None:
        if is_npm:
            raise RuntimeError("not installed")
        return Path(sys.executable).parent
    own = folder / re.sub(r"\W", "_", package)
    programs = own / ("node_modules/.bin" if is_npm else "bin")
    if not (own / "installed").exists():
        if is_npm:
            command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(own), package]
        else:
            venv.create(own, with_pip=True)
            command = [str(programs / "pip"), "install", "-q", *wanted]
        _run(command)
        (own / "installed").touch()
    return programs


def _run(command: Sequence[str], home: Path | None = None, given: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises RuntimeError with the last line of its errors."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if home is not None:  # some programs believe PWD
        environment |= {"HOME": str(home), "PWD": str(home), **(given or {})}
    try:
        result = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)[-200:]) from None
    if result.returncode:
        raise RuntimeError(((result.stderr + result.stdout).strip().splitlines() or ["no output"])[-1][:200])
    return result.stdout.strip()


def _version(programs: Path, package: str) -> str:
    if package in NPM:
        return str(json.loads((programs.parent / package / "package.json").read_text())["version"])
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return _run([str(programs / "python"), "-c", code])


def _try(programs: Path, use: Command | str, url: str, model: str, home: Path) -> str:
    """Return what a client has done. Raises RuntimeError with the last line of its errors."""
    home.mkdir(parents=True, exist_ok=True)
    if isinstance(use, str):
        command = [str(programs / "python"), str(Path(__file__).with_name("python_clients.py")), use, url, model]
        return _run(command, home).splitlines()[-1]

    def here(text: str) -> str:
        return text.replace("$URL", url).replace("$MODEL", model)

    for name, text in use.files:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(here(text))
    given = {name: here(value) for name, value in use.environment}
    _run([str(programs / use.program), *map(here, use.arguments)], home, given)
    return use.does


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    uses: dict[str, Command | str] = {**{name: name for name in USES}, **{each.package: each for each in COMMANDS}}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(uses)}; by default all")
    parser.add_argument("--install", type=Path, help="folder for the clients' environments")
    parser.add_argument("--url", help="of a server that runs; by default one of the demo is started")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in uses]:
        parser.error(f"NAME is {unknown[0]}; expected {', '.join(uses)}")
    folder = options.install.resolve() if options.install else None
    homes = (folder or Path(tempfile.mkdtemp(prefix="clients-"))) / "homes"
    failed = False
    started = nullcontext(None) if options.url else server(None, None, "--max-model-len", "32768")
    with started as client:
        url = options.url or f"http://127.0.0.1:{client.port if client else ''}"
        model = json.load(urllib.request.urlopen(f"{url}/v1/models"))["data"][0]["id"]
        print("| client | version | tried | worked |\n|---|---|---|---|")
        for name in options.names or uses:
            use = uses[name]
            wanted = (use.extras if isinstance(use, Command) else _EXTRAS.get(name)) or [name]
            version = ""
            try:
                programs = _programs(folder, name, wanted)
                version = _version(programs, name)
                what = _try(programs, use, url, model, homes / re.sub(r"\W", "_", name))
            except RuntimeError as error:
                # Without a version it is not installed.
                what, failed = str(error), failed or bool(version)
                print(f"| {name} | {version} | {what} | {'NO' if version else 'not tried'} |", flush=True)
            else:
                print(f"| {name} | {version} | {what} | yes |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
