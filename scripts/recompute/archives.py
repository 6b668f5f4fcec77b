"""The raw data of the experiments, as they stand in docs/experiments.

Each quantity is computed from the records of the runs, and from nothing that
another program computed of them: no result.json, no table.txt. The one exception is
the latency of a run: its percentiles stand in the record, and --histograms of
recompute.py computes them again from the histograms.
"""

import base64
import functools
import io
import json
import math
import pathlib
import re
import struct
import subprocess
import tarfile
import zlib


class Experiment:
    """An experiment, in an archive or not. Its runs are files runs/NNN-MODE.json, or
    lines of steps.jsonl. An archive may have several of the latter: only is then the
    end of the names of their folders."""

    def __init__(self, folder, only=""):
        self.folder, self.only = pathlib.Path(folder), only
        self.name = self.folder.name
        if not self.folder.is_dir():
            raise ValueError(f"read the experiment {folder}: there is no such folder")

    @functools.cached_property
    def files(self):
        """The raw files by name. The archive is a tar file in a frame of Zstandard."""
        archive = self.folder / "raw.tar.zst"
        if not archive.exists():
            return {p.relative_to(self.folder).as_posix(): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
        with archive.open("rb") as packed:
            unpacked = subprocess.run(["zstd", "-dcq"], check=True, stdin=packed, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
            return {m.name.removeprefix("./"): tar.extractfile(m).read() for m in tar if m.isfile()}

    @functools.cached_property
    def record(self):
        return json.loads(self.files["experiment.json"])

    @functools.cached_property
    def runs(self):
        """All runs in the order of their index, also the void ones."""
        names = [n for n in self.files if re.fullmatch(r"runs/[^/]+\.json", n)]
        runs = [json.loads(self.files[n]) | {"file": n} for n in names]
        return sorted(runs, key=lambda r: r["index"])

    @functools.cached_property
    def used(self):
        """The last valid run of each mode and block."""
        return {(r["mode"], r["block"]): r for r in self.runs if not r.get("void")}

    @functools.cached_property
    def first(self):
        """The first run of each mode and block, also if a disturbance made it void."""
        first = {}
        for r in self.runs:
            if all(DISTURBED.match(reason) for reason in r.get("void", [])):  # also if there is none
                first.setdefault((r["mode"], r["block"]), r)
        return first

    @functools.cached_property
    def modes(self):
        return sorted({r["mode"] for r in self.runs})

    def values(self, measure, mode, runs=None):
        """The measure of each block that has it, by block."""
        found = {}
        for (m, block), run in (self.used if runs is None else runs).items():
            value = MEASURES[measure](run) if m == mode else math.nan
            if math.isfinite(value):
                found[block] = value
        return found

    def logs(self, measure, over, under, runs=None):
        """The logarithms of the ratios of two modes within blocks."""
        top, bottom = self.values(measure, over, runs), self.values(measure, under, runs)
        return [math.log(top[b] / bottom[b]) for b in sorted(top) if b in bottom and top[b] > 0 and bottom[b] > 0]

    def goodput(self, mode, alone):
        """The logarithms of the frames of a mode relative to those that the CPU which
        the service leaves idle in mode alone could give, at the rate of a block's
        run of the batch work by itself."""
        frames, idle = self.values("frames", mode), self.used
        logs = []
        for block in sorted(frames):
            if ("solo", block) in idle and (alone, block) in idle:
                solo, other = idle["solo", block], idle[alone, block]
                can = (cpus(self.record["tested_cpus"]) - other["ls_cpus_used"]) * solo["be_frames_per_second"] / solo["be_cpus_used"]
                logs.append(math.log(frames[block] / can))
        return logs

    @functools.cached_property
    def rounds(self):
        """The rounds that count, of modes that take turns: (start, number, windows by
        mode). A start counts by its last valid run, and a round if none of its
        windows is void."""
        starts = {}
        for r in self.runs:
            if not r.get("void"):
                starts[r["block"]] = r
        rounds = []
        for start, run in sorted(starts.items()):
            by_round = {}
            for w in run["windows"]:
                by_round.setdefault(w["round"], {})[w["mode"]] = w
            for number, windows in sorted(by_round.items()):
                if all(m in windows and not windows[m].get("void") for m in self.record["modes"]):
                    rounds.append((start, number, windows))
        return rounds

    def turns(self, measure, over, under):
        """The logarithms of the ratios of two modes within rounds, in a list for each
        start."""
        starts = {}
        for start, _, windows in self.rounds:
            top, bottom = MEASURES[measure](windows[over]), MEASURES[measure](windows[under])
            starts.setdefault(start, []).append(math.log(top / bottom) if top > 0 and bottom > 0 else math.nan)
        return list(starts.values())

    def windows(self, mode):
        return [windows[mode] for _, _, windows in self.rounds]

    @functools.cached_property
    def steps(self):
        """The steps of an experiment on reaction that are not void."""
        names = [n for n in sorted(self.files) if n.endswith(self.only + "/steps.jsonl" if self.only else "steps.jsonl")]
        steps = [json.loads(line) for n in names for line in self.files[n].splitlines()]
        return [s for s in steps if not s.get("void")]


# Reasons that say that something else than the mode spoiled a run.
DISTURBED = re.compile(r"the hypervisor kept |other work used |the client |latency took |disturbed$")


def cpus(text):
    """The number of CPUs in a list of the kernel, such as 0-3,8."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def positive(value):
    return value if value > 0 else math.nan


def of_all(key):
    """A latency of all requests. Older versions did not store it."""
    return lambda run: positive(run["latency_with_stalls"][key]) if "latency_with_stalls" in run else math.nan


def waiting(run):
    """How long the threads of the service waited for a CPU, in µs per second."""
    if not run["ls_timeslices"]:
        return math.nan
    return run["ls_run_delay_ns"] / 1e3 / (run["length_ns"] / 1e9)


# The measures of a run or of a window. Latencies are in µs.
MEASURES = {
    "p90": lambda r: positive(r["latency"]["p90_us"]),
    "p99": lambda r: positive(r["latency"]["p99_us"]),
    "p90-all": of_all("p90_us"),
    "p99-all": of_all("p99_us"),
    "mean-all": of_all("mean_us"),
    "waiting": waiting,
    "frames": lambda r: positive(r["be_frames_per_second"]),
    "batch-cpu": lambda r: positive(r["be_cpus_used"]),
    "cpu": lambda r: r["cpu_percent"],
    "left-out": lambda r: r["spoiled_ratio"],
    "read-back": lambda r: r["memory"]["ls_refaults"] / (r["length_ns"] / 1e9),
    "reading": lambda r: r["series"][0]["at_ns"] / r["length_ns"],
}


def decode(text):
    """The counts of a histogram by their value, from the compressed V2 encoding of
    HdrHistogram in base64. The value is the largest one that counts as the same."""
    outer = base64.b64decode(text)
    cookie, length = struct.unpack(">ii", outer[:8])
    if cookie & ~0xF0 != 0x1C849304:
        raise ValueError(f"read a histogram: cookie {cookie:#x} is not that of the compressed V2 encoding")
    inner = zlib.decompressobj().decompress(outer[8:8 + length])
    cookie, length, _, digits, lowest = struct.unpack(">iiiiq", inner[:24])
    if cookie & ~0xF0 != 0x1C849303 or lowest != 1:
        raise ValueError(f"read a histogram: cookie {cookie:#x}, lowest value {lowest}")
    half = 1 << math.ceil(math.log2(2 * 10 ** digits)) - 1
    counts, index, at, end = {}, 0, 40, 40 + length
    while at < end:
        raw, shift = 0, 0
        while True:
            byte = inner[at]
            at += 1
            if shift == 56:  # the ninth byte has eight bits
                raw |= byte << shift
                break
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        count = (raw >> 1) ^ -(raw & 1)
        if count < 0:
            index -= count
            continue
        if count:
            bucket, sub = max(index // half - 1, 0), index
            if index >= half:
                sub = index % half + half
            counts[(sub << bucket) + (1 << bucket) - 1] = count
        index += 1
    return counts


def merged(histograms):
    """The sum of histograms that decode returned."""
    total = {}
    for counts in histograms:
        for value, count in counts.items():
            total[value] = total.get(value, 0) + count
    return total


def percentile(counts, q):
    """The value below or at which a share q of the counts lies."""
    wanted, seen = max(math.floor(q * sum(counts.values()) + 0.5), 1), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return math.nan
