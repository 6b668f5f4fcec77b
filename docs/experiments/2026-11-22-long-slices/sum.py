# sum.py FILE: medians, the least and the most, and the paired ratios of pairs.txt
import re,sys,statistics as S
rows={}
for l in open(sys.argv[1]):
    m=re.match(r'(\d+) (true|false) +delay_us (\S+) .* be (\S+) .* p50 (\d+) p99 (\d+) p999 (\d+) spoiled (\S+)',l)
    if m: rows.setdefault(int(m[1]),{})[m[2]]=[float(x) for x in m.groups()[2:]]
names=['delay_us','be','p50','p99','p999','spoiled']
for i,n in enumerate(names):
    a=[r['false'][i] for r in rows.values()]; b=[r['true'][i] for r in rows.values()]; q=sorted(y/x for x,y in zip(a,b) if x)
    print('%-9s kernel\'s %8.3g (%.3g to %.3g)   long %8.3g (%.3g to %.3g)   long/kernel\'s %.3f (%.3f to %.3f), below 1 in %d of %d'%(n,S.median(a),min(a),max(a),S.median(b),min(b),max(b),S.median(q),q[0],q[-1],sum(x<1 for x in q),len(q)))
