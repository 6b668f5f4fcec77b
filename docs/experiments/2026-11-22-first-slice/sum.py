import sys,re,statistics as st
from collections import OrderedDict
d=OrderedDict()
for l in open(sys.argv[1]):
    f=l.split()
    if len(f)<15: continue
    d.setdefault(f[1],[]).append([float(x.rstrip('%')) for x in (f[5],f[7],f[9],f[11],f[13],f[15],f[17])])
print('%-26s %6s %6s %8s %8s %8s %10s %8s  (median of %d rounds; late: min-max)'%('variant','mean','p50','p99','p99.9','max','late>1ms','rqdelay',len(next(iter(d.values())))))
for k,v in d.items():
    c=list(zip(*v)); m=[st.median(x) for x in c]
    print('%-26s %6.1f %6.1f %8.1f %8.1f %8.0f %9.3f%% %8.2f  (%.3f-%.3f)'%(k,*m[:5],m[5],m[6],min(c[5]),max(c[5])))
