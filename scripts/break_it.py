"""Break the server, the engine and its checkpoints on purpose, with a seed, and count what does not hold.

    python scripts/break_it.py                               # everything, once: over an hour on two cores
    python scripts/break_it.py --scale 0.01 --minutes 0.5    # a hundredth of it
    python scripts/break_it.py --only fuzz --seed 7          # one campaign
    python scripts/break_it.py --only fuzz --base-url http://127.0.0.1:8000 --api-key KEY
    python scripts/break_it.py --only faults soak --scale 0.2 --device cuda --precision fp8

Each campaign starts the servers that it needs, with the demo checkpoint on a CPU; --base-url lets `fuzz` attack one that runs
already, and --device puts the engine of `faults` and `soak` on a GPU. Prints a line for each campaign and ends in one line of JSON.
The exit status is 1 if anything failed. docs/reliability.md says what each campaign checks.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the campaigns and golden answers are tests' own

from campaigns import fuzz, long_texts, memory, overload, slow_clients, stopping
from campaigns.live_server import live_server, running_server

Result = dict[str, Any]


class Campaigns:
    """Every campaign by its name, with what it does in a full run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._seed: int = arguments.seed
        self._scale: float = arguments.scale
        self._minutes: float = arguments.minutes
        self._base_url: str | None = arguments.base_url
        self._api_key: str | None = arguments.api_key
        self._device: str = arguments.device
        self._precision: str | None = arguments.precision

    def _count(self, full: int) -> int:
        return max(round(full * self._scale), 1)

    def fuzz(self) -> Result:
        """20,000 random requests."""
        count = self._count(20_000)
        if self._base_url is not None:
            return fuzz.run(self._seed, count, server=running_server(self._base_url, self._api_key))
        with live_server("--max-model-len", 512, "--deadline", 20) as server:
            return fuzz.run(self._seed, count, server=server)

    def overload(self) -> Result:
        """20,000 requests by twenty times as many clients as the server holds."""
        return overload.run(self._seed, self._count(20_000), clients=self._count(overload.CLIENTS))

    def slow_clients(self) -> Result:
        """1,000 half heads, 50 streams that are not read, 500 cancelled streams."""
        return slow_clients.run(self._seed, self._count(1000), waits=self._scale >= 1)

    def long_texts(self) -> Result:
        """120 texts of 8 MB."""
        return long_texts.run(self._seed, self._count(10), settle=60.0 if self._scale >= 1 else 1.0)

    def stopping(self) -> Result:
        """10 servers that are stopped under load, 10 jobs of which a rank is killed."""
        return stopping.run(self._seed, self._count(10))

    def faults(self) -> Result:
        """1,000 faults injected into the engine, and 80 into the reads of offloaded experts."""
        faults = import_module("campaigns.faults")
        result: Result = faults.run(self._seed, self._count(1000), faults.load(self._device, self._precision))
        offloaded = faults.load(self._device, self._precision, offload="experts", expert_slots=6)
        experts = faults.run(self._seed, self._count(80), offloaded, where="experts")
        return result | {"experts": experts, "failures": result["failures"] + experts["failures"]}

    def checkpoints(self) -> Result:
        """2,000 mutants of checkpoints."""
        return import_module("campaigns.checkpoints").run(self._seed, self._count(2000))

    def soak(self) -> Result:
        """Nine minutes of many clients of one service, which checks its caches."""
        soak, clients = import_module("campaigns.soak"), 12 if self._device == "cpu" else 32
        return soak.run(self._seed, 540 * self._scale, device=self._device, precision=self._precision, clients=clients)

    def memory(self) -> Result:
        """An hour of mixed requests, or --minutes."""
        return memory.run(self._seed, round(60 * self._minutes))


NAMES = ("fuzz", "overload", "slow_clients", "long_texts", "stopping", "faults", "checkpoints", "soak", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="campaigns (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full counts (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="of the campaign memory (default: %(default)s)")
    parser.add_argument("--base-url", help="a server that runs already, for the campaign fuzz")
    parser.add_argument("--api-key", help="its key")
    parser.add_argument("--device", default="cpu", help="of the campaigns faults and soak (default: %(default)s)")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"), help="of the same two (default: the device's)")
    arguments = parser.parse_args()
    if arguments.base_url is not None and tuple(arguments.only) != ("fuzz",):
        parser.error(
            "--base-url is given with other campaigns; expected --only fuzz, since the others stop or kill servers"
        )
    if arguments.scale <= 0 or arguments.minutes <= 0:
        parser.error(f"--scale is {arguments.scale}, --minutes is {arguments.minutes}; expected values above 0")
    campaigns = Campaigns(arguments)
    results: dict[str, Result] = {}
    for name in arguments.only:
        campaign: Callable[[], Result] = getattr(campaigns, name)
        began = time.monotonic()
        result = campaign()
        result["seconds"] = round(time.monotonic() - began, 1)
        results[name] = result
        print(f"{name:14} {result['seconds']:8.1f} s  {len(result['failures'])} failures", flush=True)
        for failure in result["failures"][:10]:
            print(f"    {json.dumps(failure)[:600]}", flush=True)
    failed = sum(len(result["failures"]) for result in results.values())
    summary = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "seed": arguments.seed,
        "scale": arguments.scale,
        "failed": failed,
        "campaigns": results,
    }
    print(json.dumps(summary))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
