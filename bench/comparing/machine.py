"""The machine: what it is, what it can do at most, whether others keep it busy, and a quota of one CPU."""
import concurrent.futures
import datetime
import mmap
import os
import platform
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")


class Tools:
    """The two small C programs, compiled into a folder when first wanted."""

    def __init__(self, folder: str):
        self.folder, self.cc = folder, os.environ.get("CC", "cc").split()
        self.built: dict[str, str] = {}

    def path(self, name: str) -> str:
        if name not in self.built:
            out = os.path.join(self.folder, name)
            native = "-mcpu=native" if platform.machine() == "aarch64" else "-march=native"
            flags = ["-O3", native, "-pthread", f"-I{HERE.parent}"] if name == "limits" else ["-O2"]
            try:
                subprocess.run([*self.cc, *flags, str(HERE / f"{name}.c"), "-o", out], check=True, capture_output=True, text=True)
            except FileNotFoundError as e:
                raise SystemExit(f"compare: no C compiler ({self.cc[0]}); CC= names another one") from e
            except subprocess.CalledProcessError as e:
                raise SystemExit(f"compare: {name}.c does not compile: {e.stderr[-500:]}") from e
            self.built[name] = out
        return self.built[name]


def measure_limits(tools: Tools, threads: int, seconds: float, mib: int) -> dict[str, dict[str, float]]:
    """{name: {threads: value}}; names are those that limits.c prints; GB/s and Gop/s."""
    out = subprocess.run([tools.path("limits"), str(threads), str(seconds), str(mib)], capture_output=True, text=True, check=True).stdout
    limits: dict[str, dict[str, float]] = {}
    for line in out.splitlines():
        name, t, value = line.split()
        limits.setdefault(name, {})[t] = float(value)
    return limits


def read_directly(path: str) -> float:
    """Milliseconds in which eight readers bring a file from its device, 512 KiB at a time, past the page cache. Raises OSError."""
    piece, readers = 512 << 10, 8
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        offsets = iter(range(0, os.fstat(fd).st_size, piece))

        def reader() -> None:
            with mmap.mmap(-1, piece) as memory:
                for offset in offsets:                 # shared by all; next() of a range is one step of the interpreter
                    os.preadv(fd, [memory], offset)

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(readers) as pool:
            for done in [pool.submit(reader) for _ in range(readers)]:
                done.result()
        return (time.monotonic() - begin) * 1e3
    finally:
        os.close(fd)


def describe() -> dict[str, str | int]:
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    field = lambda name: m[1].strip() if (m := re.search(rf"^{name}\s*:\s*(.+)$", info, re.M)) else ""
    known = set(re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.M)[1].split()) if re.search(r"^(flags|Features)\s*:", info, re.M) else set()
    words = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
    return {"cpu": f"{field('model name') or platform.machine()}, family {field('cpu family') or '?'} model {field('model') or '?'}",
            "sets": " ".join(w for w in words if w in known), "cpus": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "commit": last_commit()}


def last_commit() -> str:
    """The subject of the last commit, where there is a repository."""
    try:
        done = subprocess.run(["git", "-C", str(HERE), "log", "-1", "--format=%s"], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def ticks() -> tuple[float, float, float]:
    """Seconds of all CPUs so far: busy (steal not among them), stolen, passed."""
    t = [int(x) / TICK for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = t
    return user + nice + system + irq + softirq, steal, sum(t)


def own_seconds() -> float:
    """Processor time of this process and of the children that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


class Watch:
    """What others take of the machine between two looks at it."""

    def __init__(self):
        self.begin, self.own = ticks(), own_seconds()

    def shares(self) -> dict[str, float]:
        now, own = ticks(), own_seconds()
        busy, stolen, passed = (b - a for a, b in zip(self.begin, now))
        passed = max(passed, 1e-9)
        return {"others": round(max(0.0, busy - (own - self.own)) / passed, 3), "stolen": round(stolen / passed, 3)}


def look_before(seconds: float) -> dict[str, float]:
    watch = Watch()
    time.sleep(seconds)
    return {**watch.shares(), "load": os.getloadavg()[0]}


def verdict(before: dict[str, float], during: dict[str, float]) -> str:
    """One line for people; begins with BUSY when the figures of this run are not worth much."""
    taken = f"others took {100 * before['others']:.0f} % of the CPUs before and {100 * during['others']:.0f} % during the run, " \
            f"the hypervisor {100 * before['stolen']:.0f} and {100 * during['stolen']:.0f} % (load before: {before['load']:.2f})"
    busy = max(before["others"], during["others"]) > 0.05 or max(before["stolen"], during["stolen"]) > 0.02
    return ("BUSY: " if busy else "quiet: ") + taken


class OneCpu:
    """A control group with a quota of one CPU; processes join it through `join` (for preexec_fn). Raises OSError when it cannot be made."""

    def __init__(self):
        mounts = [line.split()[1:4] for line in Path("/proc/mounts").read_text().splitlines()]
        own = {c: path for _, controllers, path in (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
               for c in controllers.split(",")}
        for where, kind, options in mounts:
            two = kind == "cgroup2" and "cpu" in (Path(where) / own.get("", "/").lstrip("/") / "cgroup.subtree_control").read_text().split()
            if two or (kind == "cgroup" and "cpu" in options.split(",")):
                self.path = Path(where) / own.get("" if two else "cpu", "/").lstrip("/") / f"compare-{os.getpid()}"
                self.path.mkdir()
                try:
                    if two:
                        (self.path / "cpu.max").write_text("100000 100000")
                    else:
                        (self.path / "cpu.cfs_period_us").write_text("100000")
                        (self.path / "cpu.cfs_quota_us").write_text("100000")
                except OSError:
                    self.path.rmdir()
                    raise
                return
        raise OSError("no cgroup with the cpu controller may be made here")

    def join(self) -> None:
        (self.path / "cgroup.procs").write_text("0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(50):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)
