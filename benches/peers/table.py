#!/usr/bin/env python3
"""Prints the Markdown table of a comparison: `python3 table.py peers.json...`, of what the harness writes to $OUT.

The figures are shares of the device copy of as many bytes in the same run. Results over the harness's tolerance, failures, and
peers that compute something else (forward sums) are left out, and named on stderr. It fails if ptxscan is among the failures.
"""
import json
import sys

# The harness's names of cases, where `ptxscan bench` has others.
CASES = {"R1h": "R1-bf16", "A1h": "A1-bf16", "A1b": "A1-backward"}
COLUMNS = ("case", "shape", "ptxscan", "best peer", "second", "third", "PyTorch", "torch.compile", "JAX")


def usable(row):
    """Whether the row has a right result that was timed; if not, says so."""
    name = f"{row['workload']} {row['peer']}"
    if row["peer"].endswith("-forward") or row["status"] in ("n/a", "skipped"):
        print(f"left out: {name}: {row.get('note') or row['status']}", file=sys.stderr)
    elif "pct_copy" not in row:
        print(f"FAILED: {name}: {row.get('note') or 'no copy in the same run'}", file=sys.stderr)
    elif "tol" in row and not row["l2"] <= row["tol"]:
        print(f"WRONG: {name}: error {row['l2']:.1e}, over {row['tol']:.0e}", file=sys.stderr)
    else:
        return True
    return False


def duration(milliseconds):
    microseconds = 1e3 * milliseconds
    return f"{microseconds:.0f} µs" if microseconds < 999.5 else f"{milliseconds:.2f} ms"


def line(case, rows):
    """The table's line for the rows of one case, fastest first."""
    ours = [row for row in rows if row["family"] == "ptxscan"]
    peers = [row for row in rows if row["family"] not in ("ptxscan", "copy")]

    def share(row):
        return f"{row['pct_copy'] / 100:.3f}"

    def best_of(family):
        return next((share(row) for row in peers if row["family"] == family), "–")

    shape = f"({', '.join(map(str, rows[0]['shape']))}) {rows[0]['dtype']}"
    cells = [CASES.get(case, case), shape]
    cells.append(f"{share(ours[0])} ({duration(ours[0]['med'])})" if ours else "–")
    cells += [f"{row['peer']} {share(row)}" for row in peers[:3]] + ["–"] * (3 - len(peers[:3]))
    cells += map(best_of, ("torch", "compile", "jax"))
    return cells


def about(meta):
    """What was measured with: the GPU and the versions."""
    gpu = meta.get("nvidia_smi", "").split(", ")
    parts = [f"{gpu[0]}, driver {gpu[1]}"] if len(gpu) > 1 else [meta.get("gpu", "an unknown GPU")]
    parts += [f"{name} {meta[name]}" for name in ("torch", "triton", "jax") if name in meta]
    return f"{'; '.join(parts)}; {meta.get('started', 'on an unknown day').split(' ')[0]}"


def main(paths):
    if not paths:
        sys.exit(__doc__)
    cases, failed = {}, False
    for path in paths:
        with open(path) as file:
            run = json.load(file)
        print(f"<!-- {about(run['meta'])} -->")
        for row in run["rows"]:
            if usable(row):
                cases.setdefault(row["workload"], []).append(row)
            elif row["family"] == "ptxscan":
                failed = True
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for case, rows in cases.items():
        rows.sort(key=lambda row: -row["pct_copy"])
        print("| " + " | ".join(line(case, rows)) + " |")
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1:])
