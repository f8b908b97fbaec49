"""The command line of bench/compare."""
import argparse
import json
import os
import sys
import tempfile

from comparing import figures, machine, report
from comparing.contenders import find_all, find_tealight

HELP = """Measure this runtime beside others, in turn (A, B, A, B ...), so that a busy machine disturbs all alike.

Environment: TEALIGHT=PROGRAM (default build/tealight), LLAMA_BIN=FOLDER with llama-bench, llama-completion, llama-perplexity and
llama-server, LLAMA_AVX2_BIN=FOLDER of a build for AVX2 alone, CANDLE_BIN=PROGRAM (bench/candle). Peers that are not there are left out,
and named. "lean" is llama.cpp's quickest start: no warm-up, no repacking, a small context.

figures (--only):
  cold    exec to the first byte of text, prompt of 8 tokens, file in the page cache or dropped from it; memory then
  ttft    the same for longer prompts, in the page cache
  load    what each program itself calls loading
  speed   prompt and generated tokens a second
  depth   the same with 2048 and 4096 tokens before them
  cpu     processor time for each token generated
  ppl     perplexity of bench/text.txt: no speed is bought with accuracy
  server  8 and 32 clients: tokens a second of all, median time of an answer (loopback only)
  quota   first token and 32 tokens under a quota of one CPU (cgroups; needs the right to make one)

"share of limit": decode, weights read a token / what the threads can read through 4 KiB / 2 MiB pages; prefill, products with the layers'
weights / the best int8 (or float) rate; both measured in this run. Exit: 0; 1 with --against when something of ours became worse; 2 wrong usage."""


def parse(argv: list[str]) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="compare", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", required=True, metavar="FILE", help="GGUF files")
    p.add_argument("--threads", default="1,2", metavar="N,N")
    p.add_argument("--runs", type=int, metavar="N", help="rounds; medians are given (default 5)")
    p.add_argument("--only", default="", metavar="A,B", help="figures to measure (default: all)")
    p.add_argument("--who", default="", metavar="A,B", help="only contenders whose names are listed")
    p.add_argument("--isa", default="", metavar="WORD,..", help="also with TEALIGHT_ISA=WORD")
    p.add_argument("--also", action="append", default=[], metavar="NAME=PROGRAM", help="another build of ours")
    p.add_argument("--quick", action="store_true", help="short runs: to try things, not to keep")
    p.add_argument("--json", metavar="OUT", help="write the result there")
    p.add_argument("--against", metavar="FILE", help="compare with a result of --json of this machine")
    p.add_argument("--noise", type=float, default=0.1, metavar="X", help="a change of ours counts beyond this part, or the spread of either run if larger "
                   "(default 0.1; perplexity 0.005, peak RSS 0.05)")
    a = p.parse_args(argv)
    a.only = [w for w in a.only.split(",") if w] or list(figures.MEASURES)
    if unknown := [w for w in a.only if w not in figures.MEASURES]:
        p.error(f"--only {','.join(unknown)}: known are {', '.join(figures.MEASURES)}")
    try:
        a.threads = [int(t) for t in a.threads.split(",")]
    except ValueError:
        p.error(f"--threads {a.threads}: expected numbers like 1,2")
    if min(a.threads) < 1 or (a.runs is not None and a.runs < 1):
        p.error("--threads and --runs: expected at least 1")
    for m in a.models:
        if not os.path.exists(m):
            p.error(f"--models: {m} is not there")
    if a.against and not os.path.isfile(a.against):
        p.error(f"--against: {a.against} is not there")
    return a


def main(argv: list[str]) -> int:
    a = parse(argv)
    plan = figures.QUICK if a.quick else figures.Plan()
    plan.threads, plan.runs = a.threads, a.runs or plan.runs
    with tempfile.TemporaryDirectory(prefix="compare-", dir=os.environ.get("TMPDIR")) as folder:
        contenders, missing = find_all(folder, [w for w in a.isa.split(",") if w], a.also)
        names = [c.name for c in contenders]
        if a.who:
            wanted = a.who.split(",")
            if unknown := [w for w in wanted if w not in names]:
                raise SystemExit(f"compare: --who {','.join(unknown)}: present are {', '.join(names)}")
            contenders = [c for c in contenders if c.name in wanted]
        for line in missing:
            print(f"compare: {line}", file=sys.stderr)
        tealight = find_tealight()
        models = [figures.look_at(m, tealight) for m in a.models]
        print("compare: looking at the machine", file=sys.stderr)
        before = machine.look_before(0.3 if a.quick else 2)
        watch = machine.Watch()
        tools = machine.Tools(folder)
        limits = machine.measure_limits(tools, max(a.threads), *((0.02, 128) if a.quick else (0.3, 1024)))
        bench = figures.Bench(plan, contenders, models, tools, figures.Samples(), tealight)
        for model in models:
            for threads in a.threads:
                for what in a.only:
                    figures.MEASURES[what](bench, model, threads)
        during = watch.shares()
    return finish(a, bench, limits, missing, machine.verdict(before, during))


def finish(a: argparse.Namespace, bench: figures.Bench, limits: dict, missing: list[str], busy: str) -> int:
    facts = machine.describe()
    rows = report.rows_of(bench.samples, {c.name for c in bench.contenders if c.ours})
    if not rows:
        raise SystemExit("compare: nothing was measured")
    print(f"{facts['date']}; {facts['cpu']} ({facts['sets']}), {facts['cpus']} CPUs, Linux {facts['kernel']}; commit \"{facts['commit']}\"")
    print(f"medians of {bench.plan.runs}{' short' if a.quick else ''} runs in turn; {busy}\n")
    print(report.limits_text(limits))
    for model in bench.models:
        weight_bytes = bench.samples.values.get(("weight bytes", model.name, 0, ""), [0])[0]
        for threads in [*a.threads, 0]:
            if text := report.table(rows, model, threads, weight_bytes, limits):
                print(text)
    for line in [*missing, *bench.samples.skipped]:
        print(f"not measured: {line}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"machine": facts, "state": busy, "quick": a.quick, "limits": limits, "rows": rows,
                       "skipped": [*missing, *bench.samples.skipped]}, f, indent=1)
            f.write("\n")
    if not a.against:
        return 0
    text, worse = report.against(rows, facts, a.against, a.noise)
    print(text, end="")
    return int(worse)
