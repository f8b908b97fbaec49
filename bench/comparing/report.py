"""Tables, JSON, and the comparison with an earlier result."""
import json
import statistics

from comparing.figures import Model, Samples

NOISE = {"perplexity": 0.005, "peak RSS": 0.05}      # by the beginning of a figure's name; elsewhere what --noise says


def rows_of(samples: Samples, ours: set[str]) -> list[dict]:
    rows = []
    for (figure, model, threads, who), values in samples.values.items():
        if figure in samples.units:
            unit, better = samples.units[figure]
            rows.append({"figure": figure, "model": model, "threads": threads, "who": who, "ours": who in ours, "unit": unit, "better": better,
                         "median": statistics.median(values), "values": [round(v, 4) for v in values]})
    return rows


def number(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.1f}" if abs(x) >= 100 else f"{x:.2f}" if abs(x) >= 1 else f"{x:.3f}"


def share_of_limit(figure: str, speed: float, threads: int, model: Model, weight_bytes: float, limits: dict) -> str:
    """What part of the machine's best a speed is: of reading the weights once a token, of int8 products for the layers' weights."""
    at = lambda name: limits.get(name, {}).get(str(threads), 0)
    if figure.startswith("decode") and weight_bytes:
        need = weight_bytes * speed * 1e-9
        return " / ".join(f"{100 * need / at(n):.0f} %" for n in ("read_4k", "read_2m") if at(n))
    if figure.startswith("prefill"):
        peak = max(at("int8"), at("int8_amx"), at("fma_f32"))
        return f"{100 * model.prompt_operations * speed * 1e-9 / peak:.0f} %" if peak else ""
    return ""


def ahead(cells: list[dict]) -> str:
    """How many times better the best of ours is than the best of the peers."""
    best = {}
    for mine in (True, False):
        medians = [c["median"] for c in cells if c["ours"] == mine]
        if not medians:
            return ""
        best[mine] = max(medians) if cells[0]["better"] == "higher" else min(medians)
    if min(best.values()) <= 0:
        return ""
    return f"{best[True] / best[False] if cells[0]['better'] == 'higher' else best[False] / best[True]:.2f}"


def table(rows: list[dict], model: Model, threads: int, weight_bytes: float, limits: dict) -> str:
    rows = [r for r in rows if r["model"] == model.name and r["threads"] == threads]
    if not rows:
        return ""
    figures, names = list(dict.fromkeys(r["figure"] for r in rows)), list(dict.fromkeys(r["who"] for r in rows))
    title = f"{threads} thread{'s' * (threads > 1)}" if threads else "threads as each chooses"
    lines = [f"### {model.name} ({model.megabytes:.0f} MB), {title}", "", "| figure | " + " | ".join(names) + " | ours is better by | share of limit |",
             "|---" * (len(names) + 3) + "|"]
    for figure in figures:
        cells = {r["who"]: r for r in rows if r["figure"] == figure}
        first = next(iter(cells.values()))
        ours = [r["median"] for r in cells.values() if r["ours"]]
        share = share_of_limit(figure, max(ours), threads, model, weight_bytes, limits) if ours else ""
        values = " | ".join(number(cells[n]["median"]) if n in cells else "" for n in names)
        factor = ahead(list(cells.values()))
        lines.append(f"| {figure}{', ' + first['unit'] if first['unit'] else ''} | {values} | {factor + '×' if factor else ''} | {share} |")
    return "\n".join(lines) + "\n"


def limits_text(limits: dict) -> str:
    unit = lambda name: "GB/s" if name.startswith("read") else "Gop/s"
    return "\n".join(["| limit | " + " | ".join(f"{t} thread{'s' * (t != '1')}" for t in next(iter(limits.values()))) + " |",
                      "|---" * (1 + len(next(iter(limits.values())))) + "|"] +
                     [f"| {name}, {unit(name)} | " + " | ".join(number(v) for v in by.values()) + " |" for name, by in limits.items()]) + "\n"


def spread(values: list[float]) -> float:
    """Half of what lies between the quartiles, as a part of the median: how far a median may be off."""
    middle = statistics.median(values)
    if len(values) < 4 or middle == 0:
        return 0.0
    q = statistics.quantiles(values, n=4)
    return (q[2] - q[0]) / 2 / abs(middle)


def against(rows: list[dict], machine: dict, path: str, noise: float) -> tuple[str, bool]:
    """(text, whether something of ours became worse by more than the noise) of this run beside the one in `path`."""
    try:
        with open(path) as f:
            old = json.load(f)
        before = {(r["figure"], r["model"], r["threads"], r["who"]): r for r in old["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise SystemExit(f"compare: --against {path}: no result of --json: {e}") from e
    if old["machine"]["cpu"] != machine["cpu"] or old["machine"]["cpus"] != machine["cpus"]:
        raise SystemExit(f"compare: --against {path}: that was another machine ({old['machine']['cpu']}, {old['machine']['cpus']} CPUs)")
    lines, worse, compared = [], False, 0
    for r in rows:
        o = before.get((r["figure"], r["model"], r["threads"], r["who"]))
        if not o or not r["ours"] or min(o["median"], r["median"]) <= 0:
            continue
        compared += 1
        bound = next((n for word, n in NOISE.items() if r["figure"].startswith(word)), noise)
        bound = max(bound, spread(o["values"]), spread(r["values"]))
        change = r["median"] / o["median"] if r["better"] == "higher" else o["median"] / r["median"]
        if abs(change - 1) <= bound:
            continue
        bad = change < 1
        worse |= bad
        lines.append(f"{'WORSE' if bad else 'better'}: {r['figure']}, {r['model']}, {r['threads']} thread(s), {r['who']}: "
                     f"{number(o['median'])} -> {number(r['median'])} {r['unit']} ({change:.2f}×, bound {100 * bound:.0f} %)")
    if not compared:
        raise SystemExit(f"compare: --against {path}: no figure is in both results")
    head = f"against {path} of {old['machine']['date']}: {compared} figures of ours compared, {len(lines)} beyond their bounds"
    return "\n".join([head, *lines]) + "\n", worse
