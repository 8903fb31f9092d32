"""Logs: lines with a time, perhaps a level and a source, and what happened; asked for time, cause, number, who and what."""

from ..clauses import Grammar
from ..phrases import Question
from ..splits import pick
from .drawn import Line
from .kinds import cell
from .tables import some

# Level, message with {s} the source and {v} a detail, its kind; "@" questions for the time, "=" questions for the detail.
_EVENTS = """
INFO | {s} started | | when did {s} start; when was {s} started; at what time did {s} come up; when did {s} come up
INFO | {s} stopped | | when did {s} stop; when was {s} stopped; at what time was {s} shut down
WARN | {s} restarted | | when did {s} restart; when was {s} restarted; at what time did {s} restart
INFO | {s} restarted with pid {v} | #100-32000 | when did {s} restart; when was {s} restarted | with which pid did {s} restart; what is the new pid of {s}; which pid does {s} have
ERROR | {s} failed: {v} | =disk full/timeout/no such host/permission denied/connection refused/out of memory/bad password/file not found/network unreachable/quota exceeded/invalid token/lock held/checksum mismatch/certificate expired | when did {s} fail; at what time did {s} fail; when was the failure of {s} | why did {s} fail; what was the error of {s}; with which error did {s} fail; what went wrong with {s}; what was wrong with {s}; what error did {s} have
ERROR | {s} crashed with exit code {v} | #1-255 | when did {s} crash; at what time did {s} crash | with which exit code did {s} crash; what was the exit code of {s}; which code did {s} exit with
ERROR | {s} timed out after {v} | =5s/30s/60s/12s/90s/2000ms/300ms/45 seconds/2 minutes/10s | when did {s} time out; at what time did {s} time out | after how long did {s} time out; how long did {s} wait; what was the timeout of {s}
WARN | {s} slow: {v} | =4.2s/900ms/12s/3100ms/1.8s/7s/650ms | when was {s} slow | how slow was {s}; how long did {s} take
ERROR | {s} lost connection to {v} | hostname | when did {s} lose its connection; when was {s} disconnected | which host did {s} lose; to what did {s} lose the connection
INFO | {s} deployed version {v} | version | when was {s} deployed; at what time was {s} deployed | which version of {s} was deployed; what version of {s} was deployed; which version does {s} have
INFO | {s} backup finished in {v} | =12 minutes/40s/3 min/2 h/95 seconds/1 h 20 min/18 min | when did the backup of {s} finish; when was the backup of {s} done | how long did the backup of {s} take; how much time did the {s} backup need
ERROR | {s} backup failed: {v} | =disk full/timeout/tape missing/no space left/network down/wrong key/locked file/quota exceeded | when did the {s} backup fail; when did the backup of {s} fail | why did the {s} backup fail; why did the backup of {s} fail; what was wrong with the backup of {s}
WARN | {s} disk usage {v} | #40-99% | when was the disk of {s} checked; when did {s} warn about the disk | how full is the disk of {s}; what is the disk usage of {s}; how full was {s}
WARN | {s} memory at {v} | #40-99% | when did {s} warn about memory | how much memory did {s} use; how high was the memory of {s}
INFO | user {v} logged in to {s} | login | when was the login to {s}; when did somebody log in to {s} | who logged in to {s}; which user logged in to {s}; who was on {s}
ERROR | {s} denied access to {v} | login | when did {s} deny access | who was denied access to {s}; whom did {s} reject
INFO | {s} processed {v} records | #20-90000 | when did {s} process the records | how many records did {s} process; how much did {s} process
INFO | {s} sent {v} emails | #2-900 | when did {s} send the emails | how many emails did {s} send
ERROR | {s} returned {v} | =500/404/502/503/401/403/429/418/504 | when did {s} return an error | which status did {s} return; what did {s} return; which code did {s} return; what error did {s} give
INFO | {s} cache cleared by {v} | given | when was the cache of {s} cleared | who cleared the cache of {s}; who cleared the {s} cache
INFO | {s} config changed by {v} | given | when was the config of {s} changed | who changed the config of {s}; who touched the config of {s}
INFO | {s} listening on port {v} | #1024-9999 | when did {s} start listening | on which port is {s} listening; which port does {s} use; what port is {s} on
INFO | {s} scaled to {v} instances | #2-90 | when was {s} scaled | how many instances does {s} have; to how many instances was {s} scaled
WARN | {s} certificate expires in {v} days | #1-89 | when was the warning about the certificate of {s} | in how many days does the certificate of {s} expire; how long is the certificate of {s} valid
"""
_HOME = """
INFO | front door opened by {v} | given | when was the front door opened; when did somebody open the front door | who opened the front door
INFO | {s} door opened | | when was the {s} door opened; when did the {s} door open; at what time was the {s} door opened
INFO | motion in the {s} | | when was there motion in the {s}; when did something move in the {s}; at what time was motion seen in the {s}
WARN | {s} window open | | when was the {s} window open; when did it say the {s} window is open
INFO | {s} light on | | when did the light in the {s} go on; when was the {s} light switched on
INFO | {s} temperature {v} | degrees | when was the temperature of the {s} measured | how warm was the {s}; what was the temperature in the {s}; how warm is the {s}
INFO | {s} humidity {v} | #10-99% | when was the humidity of the {s} measured | how humid was the {s}; what was the humidity in the {s}
WARN | smoke detector {s}: battery {v} | #1-40% | when did the smoke detector in the {s} report | how much battery does the smoke detector in the {s} have
INFO | {s}: {v} arrived | given | | who arrived at the {s}; who came to the {s}
INFO | {s}: {v} left | given | | who left the {s}; who went out of the {s}
INFO | parcel left in the {s} | | when was the parcel left in the {s}; when did the parcel come
ALARM | alarm in the {s} | | when was the alarm in the {s}; at what time did the alarm in the {s} go off
"""
_HOME_PLACES = "kitchen cellar attic garden garage hall bedroom bathroom office shed lobby porch nursery basement workshop pantry stable greenhouse".split()
_JOBS = "backup|nightly backup|import|export|payment-service|mail job|database|web server|login service|cron job|build|deploy|upload|sync|printer|scanner|router|sensor|pump|camera|index job|report job|cleanup|migration|health check|download".split("|")  # fmt: skip


def _parse(text: str):
    events = []
    for line in text.strip().splitlines():
        level, message, kind, when, *what = (part.strip() for part in line.split("|"))
        split = [[form.strip() for form in forms.split(";") if form.strip()] for forms in (when, *what)]
        events.append((level, message, kind, split[0], split[1] if what else []))
    return events


_SERVERS, _HOUSES = _parse(_EVENTS), _parse(_HOME)


def log(grammar: Grammar) -> list[Line]:
    """Some lines of a server's or a house's log, in one of the usual formats."""
    rng, split = grammar.rng, grammar.split
    home = rng.random() < 0.2
    events = [pick(rng, _HOUSES if home else _SERVERS) for _ in range(1 + int(rng.random() * 4))]
    form = pick(rng, [
        "{d} {t} {l} {m}", "[{t}] {l} {m}", "{t} {m}", "[{t}] {m}", "{t} - {m}", "{t} {l}: {m}", "{d}T{t}Z {l} {m}", "{l} {t} {m}", "{d} {t} [{l}] {m}",
        "{t} | {l} | {m}", "{l}: {m} ({t})", "{m} at {t}", "{t}: {m}", "<{l}> {d} {t} {m}", "{o} {t} host1 {m}", '{{"time": "{t}", "level": "{l}", "msg": "{m}"}}', "time={t} level={l} msg={m}", "{t},{l},{m}",
    ])  # fmt: skip
    day = f"{2019 + int(rng.random() * 9)}-{int(rng.random() * 12) + 1:02d}-{int(rng.random() * 28) + 1:02d}"
    old = f"{pick(rng, ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'])} {int(rng.random() * 28) + 1}"
    seconds, lower = rng.random() < 0.65, rng.random() < 0.2
    minute, lines, used = int(rng.random() * 1000), [], set()
    for _ in range(2 + int(rng.random() ** 1.4 * 9)):
        minute += int(rng.random() * 40) + 1
        time = f"{minute // 60 % 24:02d}:{minute % 60:02d}" + (f":{int(rng.random() * 60):02d}" if seconds else "")
        if rng.random() < 0.04:
            time += f".{int(rng.random() * 1000):03d}"
        level, message, kind, when, what = pick(rng, events)
        source = (
            pick(rng, _HOME_PLACES)
            if home
            else pick(rng, _JOBS)
            if rng.random() < 0.35
            else cell(rng, split, pick(rng, ("service", "service", "hostname")))
        )
        value = cell(rng, split, kind, 0.0) if kind else ""
        text = message.format(s=source, v=value)
        line = form.format(d=day, o=old, t=time, l=level.lower() if lower else level, m=text)
        family = message.split("{v}")[0]
        named = [name.format(s=source) for name in ("{s}", "the {s}")] if not home else [source, source]
        said = named[1] if source in _JOBS and rng.random() < 0.8 else named[0]
        asks: list[Question] = []
        if (family, source) not in used:
            used.add((family, source))
            key = f"{family.replace('{s}', source).strip()}"
            if when:
                asks.append(
                    Question(
                        f"when {key}",
                        time,
                        [q.format(s=said) for q in some(rng, when, 3)],
                        [f"when it says {text}"],
                        [f"time of {text}"],
                        [],
                        (f"when|{source}",),
                    )
                )
            if what:
                asks.append(
                    Question(
                        f"what {key}",
                        value,
                        [q.format(s=said) for q in some(rng, what, 4)],
                        [],
                        [f"{source} {kind.split('-')[0] if kind.isalpha() else 'detail'}"] if kind.isalpha() else [],
                        [],
                        (f"{family}|{source}",),
                    )
                )
        asks.append(
            Question(
                f"log at {time}",
                text,
                [
                    f"what happened at {time}",
                    f"what was logged at {time}",
                    f"what does the log say at {time}",
                    f"what happened at {time}",
                ],
                [f"what happened at {time}"],
                [f"{time}"],
            )
        )
        if level in ("ERROR", "ALARM", "WARN") and "{l}" in form:
            asks.append(
                Question(
                    f"the {level}",
                    text,
                    [
                        f"what was the {'error' if level == 'ERROR' else 'warning' if level == 'WARN' else 'alarm'}",
                        f"what is the {'error' if level == 'ERROR' else 'warning' if level == 'WARN' else 'alarm'} in the log",
                        f"which {'error' if level == 'ERROR' else 'warning' if level == 'WARN' else 'alarm'} was logged",
                    ],
                    [],
                    [],
                )
            )
        lines.append((line, asks))
    return lines
