"""The statistics of docs/lab-statistics.md, written from their definitions.

Nothing here comes from the code of Tenon, so that the two check each other. It
needs the standard library of Python 3 only. All intervals are exact calculations:
none of them draws random numbers.
"""

import math


def student_above(t, degrees):
    """The probability that Student's t with so many degrees of freedom exceeds t."""
    tail = beta_below(degrees / (degrees + t * t), degrees / 2, 0.5) / 2
    return tail if t >= 0 else 1 - tail


def beta_below(x, a, b):
    """The distribution function of Beta(a, b): the regularised incomplete beta
    function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_below(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The fraction is evaluated from its end, where what is left out is too small
    # to matter.
    rest = 1.0
    for m in range(300, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        rest = 1 + even / (1 + odd / rest)
    first = -(a + b) * x / (a + 1)
    return front / a / (1 + first / rest)


def solve(rising, target, low, high):
    """The x between low and high at which a rising function reaches target."""
    for _ in range(200):
        middle = (low + high) / 2
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


_student = {}


def student_quantile(degrees, alpha):
    """The value that Student's t exceeds with probability alpha, at most 1/2.

    >>> [round(student_quantile(n, a), 3) for n, a in ((1, 0.025), (5, 0.05), (10, 0.025), (27, 0.0125), (120, 0.005))]
    [12.706, 2.015, 2.228, 2.373, 2.617]
    """
    if (degrees, alpha) not in _student:
        _student[degrees, alpha] = solve(lambda t: -student_above(t, degrees), -alpha, 0, 1e6)
    return _student[degrees, alpha]


def median(values):
    """The middle value, or the mean of the two middle ones."""
    values = sorted(values)
    if not values:
        return math.nan
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def mean_and_deviation(values):
    """The mean and the standard deviation of a sample, with n - 1."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((v - mean) ** 2 for v in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def mean_bounds(values, alpha):
    """The mean with two one-sided bounds, each wrong with probability alpha. Each is
    the wider of two: that of Student's t, and that of the t statistic from which
    Hall (1992) removes the skewness by a cubic transformation."""
    n = len(values)
    mean, deviation = mean_and_deviation(values)
    if n < 2:
        return mean, -math.inf, math.inf
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / n)
    skewness = math.fsum((v - mean) ** 3 for v in values) / n / spread ** 3 if spread else 0.0
    g = skewness / math.sqrt(n)
    error, t = deviation / math.sqrt(n), student_quantile(n - 1, alpha)

    def transformed(x):
        return x + g * x * x / 3 + g * g * x ** 3 / 27 + g / 6

    high, low = solve(transformed, t, -1e4, 1e4), solve(transformed, -t, -1e4, 1e4)
    return mean, mean - error * max(t, high), mean - error * min(-t, low)


def median_bounds(values, alpha):
    """The median with the bounds of the sign test, each wrong with at most the
    probability alpha, whatever the distribution is. A bound is infinite if there are
    too few values for it.

    >>> [median_bounds(range(1, n + 1), 0.025)[1:] for n in (5, 6, 12, 20)]
    [(-inf, inf), (1, 6), (3, 10), (6, 15)]
    """
    values, n, below = sorted(values), len(values), 0
    rank = 0  # the largest one for which fewer values than it lie below the median with at most alpha
    for k in range(n):
        below += math.comb(n, k)
        if below > alpha * 2 ** n:
            break
        rank = k + 1
    if rank == 0:
        return median(values), -math.inf, math.inf
    return median(values), values[rank - 1], values[n - rank]


def quantile_bounds(values, q, alpha):
    """The smallest value that is at least as large as a share q of the values, with
    the bounds that follow from the binomial number of values below the quantile."""
    values, n = sorted(values), len(values)
    below = [0.0]  # the probability that at most k - 1 values lie below the quantile
    for k in range(n):
        below.append(below[-1] + math.exp(
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(q) + (n - k) * math.log1p(-q)))
    low, high = -math.inf, math.inf
    for k in range(1, n + 1):  # the value of rank k
        if below[k] <= alpha:
            low = values[k - 1]
        if 1 - below[k] <= alpha:
            high = min(high, values[k - 1])
    return values[max(math.ceil(q * n - 1e-9), 1) - 1], low, high


def together(samples, alpha):
    """The mean over experiments by random effects: the variance between them as
    DerSimonian and Laird (1986) estimate it, the bounds of Hartung and Knapp (2001),
    which are never narrower than without their correction. Each sample has the
    values of one experiment."""
    estimates = []
    for values in samples:
        if len(values) < 2:
            continue
        mean, deviation = mean_and_deviation(values)
        if deviation:
            estimates.append((mean, deviation ** 2 / len(values)))
    if len(estimates) == 1:
        return mean_bounds(next(v for v in samples if len(v) > 1), alpha)
    degrees = len(estimates) - 1
    weights = [1 / variance for _, variance in estimates]
    fixed = sum(w * m for w, (m, _) in zip(weights, estimates)) / sum(weights)
    q = sum(w * (m - fixed) ** 2 for w, (m, _) in zip(weights, estimates))
    between = max(0.0, (q - degrees) / (sum(weights) - sum(w * w for w in weights) / sum(weights)))
    weights = [1 / (variance + between) for _, variance in estimates]
    mean = sum(w * m for w, (m, _) in zip(weights, estimates)) / sum(weights)
    q = sum(w * (m - mean) ** 2 for w, (m, _) in zip(weights, estimates))
    reach = student_quantile(degrees, alpha) * math.sqrt(max(q / degrees, 1) / sum(weights))
    return mean, mean - reach, mean + reach


def rounds_bounds(starts, alpha):
    """The effect of modes that take turns: the mean of all rounds without the
    smallest and the largest tenth. Each bound is the widest of that of Yuen (1974)
    over the rounds, that of Student over the means of the starts, and one as far from
    the mean of the rounds as that of Student is from the mean of the starts. starts has a
    list of logarithms for each start."""
    starts = [[v for v in rounds if math.isfinite(v)] for rounds in starts]
    starts = [rounds for rounds in starts if rounds]
    values = sorted(v for rounds in starts for v in rounds)
    n, cut = len(values), len(values) // 10
    kept = values[cut:n - cut]
    trimmed, k = math.fsum(kept) / len(kept), len(kept)
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    _, deviation = mean_and_deviation(winsorised)
    reach = student_quantile(k - 1, alpha) * deviation * math.sqrt((n - 1) / k / (k - 1))
    between, spread = mean_and_deviation([math.fsum(rounds) / len(rounds) for rounds in starts])
    width = math.inf
    if len(starts) > 1:
        width = student_quantile(len(starts) - 1, alpha) * spread / math.sqrt(len(starts))
    return trimmed, min(trimmed - max(reach, width), between - width), max(trimmed + max(reach, width), between + width)


def share_at_most(seen, of, alpha):
    """The upper bound of a share that was seen so many times (Clopper and Pearson).

    >>> round(share_at_most(0, 12, 0.05), 6) == round(1 - 0.05 ** (1 / 12), 6)
    True
    >>> [round(share_at_most(seen, 10, 0.025), 4) for seen in (0, 1, 5)]
    [0.3085, 0.445, 0.8129]
    """
    if seen == of:
        return 1.0
    return solve(lambda x: beta_below(x, seen + 1, of - seen), 1 - alpha, 0, 1)
