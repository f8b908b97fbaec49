"""Runs checks and prints what becomes of them in the Test Anything Protocol, which the test runner reads."""
import os
import traceback
from collections.abc import Callable, Iterable


class Skip(Exception):
    """Raised by a check that cannot be made here; says why."""


def run(checks: Iterable[Callable | tuple[str, Callable]], *args: object) -> bool:
    """Calls each check (or the second of a pair, under the name in the first) with `args`; True: one has failed. A text that a
    check returns is printed beside its name."""
    pairs = [c if isinstance(c, tuple) else (c.__name__.removeprefix("check_"), c) for c in checks]
    print(f"1..{len(pairs)}")
    failed = False
    for n, (name, check) in enumerate(pairs, 1):
        try:
            note = check(*args)
            print(f"ok {n} - {name}" + (f": {note}" if note else ""), flush=True)
        except Skip as why:
            print(f"ok {n} - {name} # SKIP {why}", flush=True)
        except Exception as why:  # noqa: BLE001: the next check goes on
            failed = True
            frames = traceback.extract_tb(why.__traceback__)
            ours = [f for f in frames if os.path.dirname(f.filename) == os.path.dirname(frames[0].filename)]
            where = f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno}"
            print(f"not ok {n} - {name}: {type(why).__name__} in {where}: {why}".replace("\n", "\n# "), flush=True)
    return failed
