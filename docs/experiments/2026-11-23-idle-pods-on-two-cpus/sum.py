# sum.py FILE: medians (least, most) of the rounds, and the paired ratio to shares.
import sys, statistics as st
rows = {}
for line in open(sys.argv[1]):
    f = line.split()
    rows.setdefault(f[1], {})[int(f[0])] = {f[i]: float(f[i + 1]) for i in range(2, len(f) - 1, 2)}
for key in ("wake50", "wake99", "wake999", "extra99", "extra999", "rqdelay", "n", "be"):
    print(key)
    for v, r in sorted(rows.items()):
        x = [d[key] for d in r.values()]
        q = [r[k][key] / rows["shares"][k][key] for k in r if rows["shares"].get(k, {}).get(key)]
        print("  %-14s %8.1f (%.1f to %.1f)   to shares %s" % (v, st.median(x), min(x), max(x), "%.2f (%.2f to %.2f), less in %d of %d" % (st.median(q), min(q), max(q), sum(y < 1 for y in q), len(q)) if q else "-"))
