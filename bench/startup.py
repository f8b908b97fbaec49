#!/usr/bin/env python3
"""Start-up time: posix_spawn to exit, of several programs in turn, so that a busy machine disturbs all alike.

usage: startup.py [-n ROUNDS] PROGRAM...      each PROGRAM is a command line; prints median and minimum in microseconds
"""
import argparse
import os
import shlex
import statistics
import time


def measure(commands: list[list[str]], rounds: int) -> list[tuple[float, float]]:
    """(median, minimum) in microseconds for each command, run in turn `rounds` times; output goes to /dev/null."""
    null = os.open("/dev/null", os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(rounds):
        for command, spent in zip(commands, times):
            start = time.perf_counter_ns()
            pid = os.posix_spawn(command[0], command, {}, file_actions=actions)
            status = os.waitpid(pid, 0)[1]
            spent.append((time.perf_counter_ns() - start) / 1000)
            if status != 0:
                raise RuntimeError(f"{shlex.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    os.close(null)
    return [(statistics.median(t), min(t)) for t in times]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-n", type=int, default=300, metavar="ROUNDS")
    p.add_argument("program", nargs="+")
    a = p.parse_args()
    results = measure([shlex.split(c) for c in a.program], a.n)
    for command, (median, least) in zip(a.program, results):
        print(f"{median:8.0f} us (min {least:.0f}, {median / results[0][0]:.2f}x)  {command}")


if __name__ == "__main__":
    main()
