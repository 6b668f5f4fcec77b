#!/usr/bin/env python3
"""Computes each figure of README.md and docs/results.md again from the raw data.

    scripts/recompute/recompute.py [--print] [--histograms] [FOLDER...]

figures.txt says which phrases of the pages have figures, and of which experiments
they are which quantities. The program fails if a figure on a page is not the one that
it computes, rounded as the page rounds it, and if a page has a figure with a unit of
effect (%, times, ms, µs, an interval) that figures.txt does not know. It shares no
code with Tenon, and needs Python 3 without modules, and the command zstd.

For an experiment whose modes take turns, it also computes what result.json has of the
claims and of the modes: of all in docs/experiments, or of FOLDER, packed or not, alone.
"""

import argparse
import collections
import itertools
import json
import math
import pathlib
import re
import sys

import estimates
from archives import Experiment, cpus, decode, merged, percentile

TWO_SIDED = 0.025  # error of each bound of an interval of 95 %


class Value:
    """A figure with its interval, and what else its quantity has, by name."""

    def __init__(self, v, lo=math.nan, hi=math.nan, **more):
        self.parts = {"v": v, "lo": lo, "hi": hi} | more

    def mapped(self, f):
        new = Value(0)
        new.parts = {name: f(v) for name, v in self.parts.items()}
        if new.parts["lo"] > new.parts["hi"]:
            new.parts["lo"], new.parts["hi"] = new.parts["hi"], new.parts["lo"]
        return new


# How a page shows a value: "change" is +13.7 (%) for a ratio of 1.137, and "fewer" is
# 1.3 (%) for one of 0.987.
SHOWN = {
    "plain": lambda v: v,
    "ms": lambda v: v / 1000,
    "percent": lambda v: v * 100,
    "change": lambda v: (v - 1) * 100,
    "fewer": lambda v: (1 - v) * 100,
}


def ratio_of(logs):
    mean, low, high = estimates.mean_bounds(logs, TWO_SIDED)
    middle, below, above = estimates.median_bounds(logs, TWO_SIDED)
    largest = sorted(logs)
    return Value(mean, low, high, med=middle, medlo=below, medhi=above, top1=largest[-1], top2=largest[-2]).mapped(math.exp)


class Quantities:
    """The quantities that figures.txt may name. Each method takes the words after its
    name, and returns a list of values."""

    def __init__(self, root, groups):
        self.root, self.groups, self.cache = root, groups, {}

    def experiments(self, name):
        if name not in self.groups:
            raise ValueError(f"no line \"let {name} = …\"")
        found = []
        for part in self.groups[name]:
            if part in self.groups:
                found += self.experiments(part)
                continue
            if part not in self.cache:
                folder, _, only = part.partition(":")
                self.cache[part] = Experiment(self.root / "docs" / "experiments" / folder, only)
            found.append(self.cache[part])
        return found

    def one(self, name):
        found = self.experiments(name)
        if len(found) != 1:
            raise ValueError(f"{name} is {len(found)} experiments; want one")
        return found[0]

    def median(self, measure, mode, group):
        """The median over the blocks of each experiment."""
        return [Value(estimates.median(x.values(measure, mode).values())) for x in self.experiments(group)]

    def spread(self, measure, modes, group):
        """The smallest and the largest median of the modes in the experiments."""
        medians = []
        for x in self.experiments(group):
            for mode in (x.modes if modes == "all" else modes.split(",")):
                values = x.values(measure, mode)
                if mode != "solo" and values:
                    medians.append(estimates.median(values.values()))
        return [Value(math.nan, min(medians), max(medians))]

    def ratio(self, measure, modes, group):
        """The geometric mean of the ratios within blocks, for each experiment."""
        return [ratio_of(x.logs(measure, *modes.split("/"))) for x in self.experiments(group)]

    def first_ratio(self, measure, modes, group):
        """The same with the first run of each mode and block, void or not."""
        return [ratio_of(x.logs(measure, *modes.split("/"), x.first)) for x in self.experiments(group)]

    def meta(self, measure, modes, group):
        """The ratio over all experiments together."""
        samples = [x.logs(measure, *modes.split("/")) for x in self.experiments(group)]
        return [Value(*estimates.together(samples, TWO_SIDED)).mapped(math.exp)]

    def goodput(self, mode, group):
        """Frames as a share of what the CPU that the service alone leaves idle gives."""
        return [ratio_of(x.goodput(mode, "exclusive")) for x in self.experiments(group)]

    def largest(self, count, measure, mode, group):
        """The values of the blocks in which the measure is largest: lo to hi."""
        values = sorted(self.one(group).values(measure, mode).values())[-int(count):]
        return [Value(math.nan, values[0], values[-1])]

    def blocks(self, modes, group):
        """The number of blocks in which both modes have a valid run."""
        of = [set(self.one(group).values("waiting", m)) for m in modes.split("/")]
        return [Value(len(set.intersection(*of)))]

    def runs(self, modes, group):
        """The number of runs of the modes, also of void ones."""
        return [Value(sum(r["mode"] in modes.split(",") for x in self.experiments(group) for r in x.runs))]

    def void(self, cause, modes, group):
        """How many runs are void: all, those with steal, or those without it."""
        def counts(r):
            steal = any(reason.startswith("the hypervisor kept") for reason in r.get("void", []))
            return bool(r.get("void")) and (cause == "all" or steal == (cause == "steal"))

        return [Value(sum(r["mode"] in modes.split(",") and counts(r) for x in self.experiments(group) for r in x.runs))]

    def request_share(self, group):
        """The largest share of the CPU that the request of the batch pod gives it,
        beside a service that requests all tested CPUs."""
        x = self.one(group)
        batch = x.record["batch_request_mcpu"] / 1000
        return [Value(batch / (batch + cpus(x.record["tested_cpus"])))]

    def request(self, group):
        """The request of the batch pod, in CPUs."""
        return [Value(self.one(group).record["batch_request_mcpu"] / 1000)]

    def requests(self, group):
        """The CPU requests of the batch pod and of the service together, in CPUs."""
        x = self.one(group)
        return [Value(x.record["batch_request_mcpu"] / 1000 + cpus(x.record["tested_cpus"]))]

    def lengths(self, group):
        """The shortest and the longest measured part of the valid runs, in s."""
        lengths = [r["length_ns"] / 1e9 for x in self.experiments(group) for r in x.used.values()]
        return [Value(math.nan, min(lengths), max(lengths))]

    def starts_needed(self, share, error):
        """The number of starts of which none must be bad, to show that fewer than a
        share of them are: without a bad one, the bound of n is 1 - error^(1/n)."""
        return [Value(math.floor(math.log(float(error)) / math.log1p(-float(share))) + 1)]

    def first_interval(self, group):
        """The share of the warm-up in the interval between the first two readings of
        an experiment that reads as seldom as a run is long."""
        at = [estimates.median(x.values("reading", m).values()) for x in self.experiments(group) for m in ("default", "tenon")]
        return [Value(1 - estimates.median(at))]

    def in_delays(self, mode, group):
        """The shares of the requests that were left out, of those due in a delay of
        the service (v) and of the others (hi)."""
        rows = [line.split() for line in self.one(group).files["lab-runs.txt"].decode().splitlines()]
        due, out, all_due, all_out = (sum(int(r[i]) for r in rows if r[0] == mode) for i in range(1, 5))
        return [Value(out / due, hi=(all_out - out) / (all_due - due))]

    def pairs(self, error, group):
        """The ratio of the pairs of a trial. Each bound is wrong with probability
        error, and the wider of that of the mean and that of the median."""
        logs = [int(line) / 1000 for line in self.one(group).files["pairs-log-thousandths.txt"].split()]
        mean, low, high = estimates.mean_bounds(logs, float(error))
        _, below, above = estimates.median_bounds(logs, float(error))
        value = Value(mean, low, high, widelo=min(low, below), widehi=max(high, above)).mapped(math.exp)
        value.parts["count"] = len(logs)
        return [value]

    def found(self, file, group, *words):
        """The figures in a text of the raw data. In the words, # is a figure."""
        text = " ".join(self.one(group).files[file].decode().split())
        found = re.search(pattern(" ".join(words)), text)
        if not found:
            raise ValueError(f"{file} does not have it")
        return [Value(number(figure)) for figure in found.groups()]

    def column(self, page, *name):
        """The three largest values of a column of a table that a test makes on a page."""
        rows = [[c.strip() for c in line.strip("|\n").split("|")] for line in (self.root / page).read_text().splitlines() if line[:1] == "|"]
        head = next(i for i, row in enumerate(rows) if " ".join(name) in row)
        at, width = rows[head].index(" ".join(name)), len(rows[head])
        body = itertools.takewhile(lambda row: len(row) == width, rows[head + 2:])
        values = sorted(number(row[at].split()[0]) for row in body)
        return [Value(math.nan, top1=values[-1], top2=values[-2], top3=values[-3])]

    # The quantities of an experiment on reaction. Times are in ms.

    def answered(self, what, group):
        """The time from the first event of a step until BE was narrowed. what is all
        (the steps in which the event came early enough for an answer within 100 ms),
        or the steps in which the first event caused it, or a later one. The parts
        least and most are about the time from the first event to the one that caused
        it."""
        answers = [a for s in self.one(group).steps if s["mode"] == "events" and s.get("events") for a in [answer(s)]]
        kinds = {"all": lambda a: a.room >= 100, "first": lambda a: a.event == 0, "later": lambda a: a.event > 0}
        some = [a for a in answers if kinds[what](a)]
        times, events = [a.narrowed for a in some], [a.event for a in some]
        v, low, high = estimates.quantile_bounds(times, 0.99, TWO_SIDED)
        return [Value(v, low, high, steps=len(times), late=sum(t > 100 for t in times), least=min(events), most=max(events))]

    def steps(self, mode, group):
        steps = [s for s in self.one(group).steps if s["mode"] == mode]
        return [Value(len(steps), hi=sum(raised(s) >= s["length_ns"] / 1e6 for s in steps))]

    def raised(self, mode, group):
        """The time for which the delay of the service stays raised."""
        return [Value(estimates.mean_and_deviation(list(raised_by_block(self.one(group).steps, mode).values()))[0])]

    def raised_ratio(self, modes, group):
        top, bottom = (raised_by_block(self.one(group).steps, m) for m in modes.split("/"))
        return [ratio_of([math.log(top[b] / bottom[b]) for b in sorted(top)])]

    def throughput(self, nodes, share, group, *schedulers):
        """How many pods the second scheduler places for the CPU time that one pod
        costs the first one, by rounds. share is the percentage of pods that ask for
        CPUs."""
        first, second = " ".join(schedulers).split("/")
        cost = {}
        for line in self.one(group).files["blocks.csv"].decode().splitlines()[1:]:
            n, asking, number_of_round, scheduler, cpu = line.split(",")[:5]
            if (n, asking) == (nodes, share):
                cost[scheduler, number_of_round] = float(cpu)
        return [ratio_of([math.log(us / cost[second, r]) for (s, r), us in cost.items() if s == first])]

    # The quantities of an experiment whose modes take turns.

    def turns(self, measure, modes, error, group):
        """The ratio in the typical round. Each bound is wrong with probability error."""
        logs = self.one(group).turns(measure, *modes.split("/"))
        return [Value(*estimates.rounds_bounds(logs, float(error))).mapped(math.exp)]

    def turns_over_the_run(self, measure, modes, error, group):
        """The ratio over all windows. Each bound is wrong with probability error."""
        of, to = modes.split("/")
        found = over_the_run(self.one(group), {"measure": measure, "of": of, "to": to}, float(error))
        return [Value(found["ratio"], found["lower_bound"], found["upper_bound"])]

    def turns_total(self, measure, mode, group):
        """Frames or seconds of all windows of a mode."""
        key, unit = {"frames": ("be_frames", 1), "seconds": ("length_ns", 1e9), "minutes": ("length_ns", 60e9)}[measure]
        return [Value(sum(w[key] for w in self.one(group).windows(mode)) / unit)]

    def turns_rate(self, measure, mode, group):
        """Frames a second, or the waiting in µs per second, over all windows, with the
        bounds of the mean of the starts, each wrong with probability 0.05."""
        key, unit = {"frames": ("be_frames", 1), "waiting": ("ls_run_delay_ns", 1e3)}[measure]
        return [Value(*rate_of_starts(self.one(group), mode, key, unit))]

    def turns_percentile(self, q, mode, group):
        """The latency of all requests of a mode, over its windows together."""
        counts = merged(decode(w[half]) for w in self.one(group).windows(mode) for half in HALVES)
        return [Value(percentile(counts, float(q)))]

    def given(self, figure, *reason):
        """A figure that is no result, such as a limit that was set. The reason says
        what it is."""
        if not reason:
            raise ValueError(f"given {figure}: want a reason")
        return [Value(number(figure))]


HALVES = ("early_latency_histogram_us", "late_latency_histogram_us")


Answer = collections.namedtuple("Answer", "room event narrowed")


def answer(step):
    """Times in ms after the first event of a step: to the end of the step, to the event
    that caused the narrowing of BE, and to the narrowing. The last two are infinite
    if there was none."""
    begin = step["events"][0]["at_ns"]
    room = (step["length_ns"] - begin) / 1e6
    for t in step.get("turns") or []:
        if t["narrowed"] and t["ended_ns"] >= begin:
            event = t["woken_ns"] - begin if t.get("woken_ns") is not None else math.inf  # the clock
            return Answer(room, max(event, 0) / 1e6, (t["ended_ns"] - begin) / 1e6)
    return Answer(room, math.inf, math.inf)


def raised(step):
    """The time in ms from the begin of a step to the end of the last late cycle before
    100 ms without one. A cycle is late by 2 ms or more."""
    last, length = 0, step["length_ns"] / 1e3
    for due, delay in zip(step["due_us"], step["delays_us"]):
        if due - last >= 100e3:
            return last / 1e3
        if delay >= 2e3:
            last = max(last, due + delay)
    if step.get("undone") or length - last < 100e3:
        return length / 1e3
    return last / 1e3


def raised_by_block(steps, mode):
    """The mean time for which the delay stays raised, by block."""
    blocks = {}
    for s in steps:
        if s["mode"] == mode:
            blocks.setdefault(s["block"], []).append(raised(s))
    return {b: math.fsum(times) / len(times) for b, times in blocks.items()}


FIGURE = r"[−+-]?\d(?:[\d,]*\d)?(?:\.\d+)?"


def number(text):
    return float(text.replace(",", "").replace("−", "-"))


def pattern(phrase):
    """The regular expression of a phrase in which # stands for a figure."""
    return re.escape(phrase).replace(r"\ ", r"\s+").replace(r"\#", f"({FIGURE})")


def plain(text):
    """A page without what does not show: code blocks, targets of links, emphasis, line
    breaks. Rows of a table stay apart."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"[\[\]`*]", "", text)
    text = re.sub(r"\n\|", "\n\n|", text)
    return "\n".join(" ".join(block.split()) for block in re.split(r"\n\s*\n", text))


def unknown(page, known):
    """The figures with a unit of effect that no phrase covers, each with its context."""
    found = []
    for m in re.finditer(rf"(?<![\w.,/−+-]){FIGURE}(?![\w.]*\w)", page):
        if any(begin <= m.start() and m.end() <= end for begin, end in known):
            continue
        before, after = page[max(0, m.start() - 40):m.start()], page[m.end():m.end() + 40]
        cell = before.rpartition("|")[2] + m.group() + after.partition("|")[0]
        in_row = "|" in page[page.rfind("\n", 0, m.start()) + 1:m.start()]
        is_effect = (
            re.match(r"\s*(%|times|ms|µs|ns)(?!\w)", after)
            or re.match(rf"\s+to\s+{FIGURE}[,);]", after) or re.search(rf"\({FIGURE}\s+to\s+$", before)
            or m.group()[0] in "−+" or before.endswith("×")
            or in_row and not re.search(r"[A-Za-z]{2}", re.sub(r"\bto\b", "", cell)))
        if is_effect:
            found.append(" ".join((before + "»" + m.group() + "«" + after).split()))
    return found


def agrees(printed, value, rounding):
    """Whether a page prints a value, rounded to its own digits: to the nearest one, or
    up (+) or down (-), so that what the page says of a bound stays true."""
    last = 10 ** -len(printed.partition(".")[2])
    above, slack = number(printed) - value, last * 1e-6 + 1e-9
    least, most = {"": (-0.5, 0.5), "+": (0, 1), "-": (-1, 0)}[rounding]
    return least * last - slack <= above <= most * last + slack


def shown(value, printed):
    return f"{value:.{len(printed.partition('.')[2]) + 2}f}"


class Figures:
    """figures.txt: groups of experiments, and the phrases of each page."""

    def __init__(self, text):
        self.groups, self.phrases, page, phrase = {}, [], None, None
        for at, line in enumerate(text.splitlines(), 1):
            words = line.split("#!")[0].split()
            if not words:
                continue
            if line[0] == "\t":
                if phrase is None:
                    raise ValueError(f"figures.txt:{at}: a quantity without a phrase")
                phrase[3].append((at, line.strip()))
            elif words[0] == "let" and words[2] == "=":
                self.groups[words[1]] = words[3:]
            elif words[0] == "page":
                page = words[1]
            else:
                phrase = (page, at, plain(line), [])
                self.phrases.append(phrase)

    @property
    def pages(self):
        return list(dict.fromkeys(page for page, *_ in self.phrases))


def computed(quantities, line):
    """The values of a line of figures.txt: NAME WORD… : HOW PART… Each has the direction
    in which the page rounds it."""
    what, _, how = line.partition(" : ")
    name, *words = what.split()
    parts = how.split() or ["v"]
    transform = SHOWN[parts.pop(0)] if parts[0] in SHOWN else SHOWN["plain"]
    method = getattr(quantities, name.replace("-", "_"), None)
    if method is None or name in ("experiments", "one"):
        raise ValueError(f"there is no quantity {name}")
    values = []
    for value in method(*words):
        value = value.mapped(transform)
        for part in parts or ["v"]:
            name = part.rstrip("+-")
            values.append((value.parts[name], part[len(name):]))
    return values


def check_page(page, text, figures, quantities, show):
    """Compares the figures of a page. It returns errors and the number of figures."""
    errors, known, count, given = [], [], 0, 0
    for of, at, phrase, lines in figures.phrases:
        if of != page:
            continue
        found = list(re.finditer(pattern(phrase), text))
        if len(found) != 1:
            errors.append(f"figures.txt:{at}: {page} has this phrase {len(found)} times, want once: {phrase}")
            continue
        known.append(found[0].span())
        values, sources = [], []
        for line_at, line in lines:
            try:
                some = computed(quantities, line)
            except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError, StopIteration, OSError) as e:
                errors.append(f"figures.txt:{line_at}: {line}: {type(e).__name__}: {e}")
                some = []
            values += some
            sources += [line] * len(some)
        printed = found[0].groups()
        if len(printed) != len(values):
            errors.append(f"figures.txt:{at}: {len(printed)} figures in the phrase, {len(values)} quantities: {phrase}")
            continue
        for p, (v, rounding), source in zip(printed, values, sources):
            count, given = count + 1, given + source.startswith("given ")
            if show:
                print(f"{page}: {p:>8}  {shown(v, p):>10}  {source}")
            if not agrees(p, v, rounding):
                errors.append(f"{page}: {found[0].group()!r}: printed {p}, computed {shown(v, p)} ({source})")
    errors += [f"{page}: figures.txt does not know the figure: {context}" for context in unknown(text, known)]
    return errors, count, given


def rate_of_starts(experiment, mode, key, unit=1.0, error=0.05):
    """A counter per second over all windows of a mode, with Student's bounds of the mean
    of the rates of the starts."""
    starts = {}
    for start, _, windows in experiment.rounds:
        starts.setdefault(start, []).append((windows[mode][key] / unit, windows[mode]["length_ns"] / 1e9))
    totals = [tuple(map(math.fsum, zip(*windows))) for windows in starts.values()]
    rates = [amount / seconds for amount, seconds in totals]
    mean, spread = estimates.mean_and_deviation(rates)
    reach = estimates.student_quantile(len(rates) - 1, error) * spread / math.sqrt(len(rates))
    amount, seconds = map(math.fsum, zip(*totals))
    return amount / seconds, mean - reach, mean + reach


def by_start(rounds, log):
    """The logarithms of what the rounds have, in a list for each start."""
    starts = {}
    for start, *rest in rounds:
        starts.setdefault(start, []).append(log(*rest))
    return list(starts.values())


def effect(starts, error):
    """An effect as result.json has it."""
    bounds = estimates.rounds_bounds(starts, error)
    return dict(zip(("ratio", "lower_bound", "upper_bound"), map(math.exp, bounds)))


def bad_starts(starts, factor):
    """How many starts had so many times the ratio of the typical round or more, with a
    factor below 1 or less, and how many may."""
    typical, _, _ = estimates.rounds_bounds(starts, 0.05)
    sign = 1 if factor >= 1 else -1
    seen = sum(sign * math.fsum(logs) / len(logs) >= sign * (typical + math.log(factor)) for logs in starts)
    return {"seen": seen, "starts": len(starts), "share_upper_bound": estimates.share_at_most(seen, len(starts), 0.05)}


def over_the_run(experiment, claim, error):
    """The ratio of the rates of two modes over all windows. Its bounds are those of
    Student over the starts, of the linear part of its logarithm."""
    amount = {"waiting": lambda w: w["ls_run_delay_ns"] / 1e3, "batch-cpu": lambda w: w["be_cpus_used"] * w["length_ns"] / 1e9}[claim["measure"]]
    sums = collections.defaultdict(lambda: [0, 0, 0, 0])
    for start, _, windows in experiment.rounds:
        over, under = windows[claim["of"]], windows[claim["to"]]
        for i, v in enumerate((amount(over), under["length_ns"], over["length_ns"], amount(under))):
            sums[start][i] += v
    totals = [math.fsum(values) for values in zip(*sums.values())]
    log = math.log(totals[0] * totals[1] / totals[2] / totals[3])
    parts = [a / totals[0] + b / totals[1] - c / totals[2] - d / totals[3] for a, b, c, d in sums.values()]
    reach = estimates.student_quantile(len(parts) - 1, error) * estimates.mean_and_deviation(parts)[1] * math.sqrt(len(parts))
    return {"ratio": math.exp(log), "lower_bound": math.exp(log - reach), "upper_bound": math.exp(log + reach)}


def figures_of_turns(experiment, mode):
    """What result.json has of a mode that takes turns, from its windows. The keys of a
    part of it are joined by a point."""
    windows = experiment.windows(mode)
    seconds = [w["length_ns"] / 1e9 for w in windows]

    def rate(key, unit=1.0):
        return math.fsum(w[key] for w in windows) / unit / math.fsum(seconds)

    def share(key):
        return math.fsum(w[key] * s for w, s in zip(windows, seconds)) / math.fsum(seconds)

    def p90(window):
        return window["latency_with_stalls"]["p90_us"]

    counts = merged(decode(w[half]) for w in windows for half in HALVES)
    early = by_start(experiment.rounds, lambda _, ws: math.log(
        percentile(decode(ws[mode][HALVES[0]]), 0.9) / percentile(decode(ws[mode][HALVES[1]]), 0.9)))
    pairs = [(start, ws, others) for (start, n, ws), (next_start, m, others) in zip(experiment.rounds, experiment.rounds[1:])
             if start == next_start and m == n + 1 and m % 2 == 0]
    odd = by_start(pairs, lambda ws, others: math.log(p90(ws[mode]) / p90(others[mode])))
    requests = math.fsum(w["requests"] for w in windows)
    found = {
        "windows": len(windows), "seconds": math.fsum(seconds),
        "be_frames": math.fsum(w["be_frames"] for w in windows), "be_frames_per_second": rate("be_frames"),
        "ls_waiting_us_per_second": rate("ls_run_delay_ns", 1e3),
        "cpu_percent": share("cpu_percent"), "be_cpus_used": share("be_cpus_used"),
        "left_out_ratio": math.fsum(w["spoiled_ratio"] * w["requests"] for w in windows) / requests,
        "p90_without_client_stalls_us": estimates.median([w["latency"]["p90_us"] for w in windows]),
    }
    for key, q in (("p50_us", 0.5), ("p75_us", 0.75), ("p90_us", 0.9), ("p99_us", 0.99)):
        found["latency_of_all_requests." + key] = percentile(counts, q)
    for name, starts, error in (("carry_over", early, 0.05), ("odd_to_even", odd, 0.025)):
        found |= {f"{name}.{key}": v for key, v in effect(starts, error).items()}
    return found


def check_turns(experiment):
    """Computes the claims and the figures of the modes in the result.json of an
    experiment whose modes take turns."""
    errors, count = [], 0
    result = json.loads((experiment.folder / "result.json").read_text())

    def compare(where, values, computed):
        nonlocal count
        for key, value in computed.items():
            there = values
            for part in key.split("."):
                there = there[part]
            count += 1
            if not math.isclose(value, there, rel_tol=1e-6, abs_tol=1e-9):
                errors.append(f"{experiment.folder}: {where}: {key} {there}, computed {value}")

    measures = {"waiting": "waiting", "batch-cpu": "batch-cpu", "p90": "p90-all"}
    for claim in result["claims"]:
        if claim["measure"] not in measures:
            errors.append(f"{experiment.folder}: claim {claim['name']}: unknown measure {claim['measure']}")
            continue
        logs = experiment.turns(measures[claim["measure"]], claim["of"], claim["to"])
        compare("claim " + claim["name"], claim["effect"], effect(logs, claim["effect"]["bound_error"]))
        compare("bad starts of " + claim["name"], claim["bad_starts"], bad_starts(logs, claim["bad_starts"]["factor"]))
        if "effect_over_the_run" in claim:
            run = claim["effect_over_the_run"]
            compare(claim["name"] + " over the run", run, over_the_run(experiment, claim, run["bound_error"]))
    for mode in result["modes"]:
        compare(mode["mode"], mode, figures_of_turns(experiment, mode["mode"]))
    claims = {claim["name"]: claim for claim in result["claims"]}
    shared = sum({"work": 2, "alone": 6, "requests": 4}[said["about"]] for said in result.get("conclusions", []))
    looks = len(result["experiment"]["planned_looks"])
    for said in result.get("conclusions", []):  # older versions have none
        if said["about"] == "work":
            found = dict(zip(("estimate", "lower_bound", "upper_bound"), rate_of_starts(experiment, "tenon", "be_frames", error=said["bound_error"])))
            work = figures_of_turns(experiment, "tenon")
            found |= {"amount": work["be_frames"], "seconds": work["seconds"]}
        else:
            of = claims[said["claim"]]
            found = effect(experiment.turns(measures[of["measure"]], of["of"], of["to"]), said["bound_error"])
            found["estimate"] = found.pop("ratio")
            for key, measure in (("p99", "p99-all"), ("waiting", "waiting")):
                if key in said:
                    logs = experiment.turns(measure, of["of"], of["to"])
                    found |= {f"{key}.{part}": v for part, v in effect(logs, said["bound_error"]).items()}
            if "over_the_run" in said:
                found |= {"over_the_run." + part: v for part, v in over_the_run(experiment, of, said["bound_error"]).items()}
        found["bound_error"] = 0.05 / shared / looks
        compare("conclusion about " + said["about"], said, found)
    return errors, count


def check_histograms(experiment):
    """Compares the percentiles in the records of runs with the histograms."""
    errors, count = [], 0
    for run in experiment.used.values():
        log = experiment.files.get(run["file"].removesuffix(".json") + ".hlog")
        if log is None:
            continue
        lines = [line for line in log.decode().splitlines() if re.match(r"[\d.]+,", line)]
        counts = merged(decode(line.rpartition(",")[2]) for line in lines)
        for key, q in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)):
            count += 1
            if abs(percentile(counts, q) - run["latency"][key]) > 1 + 0.002 * run["latency"][key]:
                errors.append(f"{experiment.name}: {run['file']}: {key} {run['latency'][key]}, computed {percentile(counts, q)}")
    return errors, count


def takes_turns(folder):
    return json.loads((folder / "result.json").read_text())["experiment"].get("design") == "switch"


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=here.parent.parent, help="the folder of README.md")
    parser.add_argument("--figures", type=pathlib.Path, default=here / "figures.txt", help="the list of figures")
    parser.add_argument("--pages-only", action="store_true", help="do not compute the claims about turns")
    parser.add_argument("--print", action="store_true", help="print each figure beside the computed one")
    parser.add_argument("--histograms", action="store_true", help="also compute the percentiles of the runs (3 s)")
    parser.add_argument("folders", nargs="*", type=pathlib.Path, metavar="FOLDER", help="an experiment whose modes take turns")
    options = parser.parse_args()
    errors, folders = [], options.folders
    if not folders:
        figures = Figures(options.figures.read_text())
        quantities = Quantities(options.root, figures.groups)
        for page in figures.pages:
            text = plain((options.root / page).read_text())
            some, count, given = check_page(page, text, figures, quantities, options.print)
            errors += some
            print(f"{page}: {count} figures, {given} of them given")
        if options.histograms:
            for experiment in quantities.cache.values():
                some, count = check_histograms(experiment)
                errors += some
                print(f"{experiment.name}: {count} percentiles")
        if not options.pages_only:
            folders = [r.parent for r in sorted(options.root.glob("docs/experiments/*/result.json")) if takes_turns(r.parent)]
    for folder in folders:
        some, count = check_turns(Experiment(folder))
        errors += some
        print(f"{folder.name}: {count} figures about turns")
    for e in errors:
        print(e, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
