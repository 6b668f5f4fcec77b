# who ran while nginx waited: waits, those over 0.2 ms in which ffmpeg ran longest, and the time that ffmpeg and others ran meanwhile
import re,sys
from collections import Counter
sw=re.compile(r'\[001\].*? (\d+\.\d+): sched_switch: prev_comm=(.*?) prev_pid.*==> next_comm=(.*?) next_pid')
wk=re.compile(r' (\d+\.\d+): sched_wakeup: comm=nginx .*target_cpu=001')
woke=None;ran=Counter();tot=Counter();n=long=longest=0;over=0
for l in open(sys.argv[2]):
    m=wk.search(l)
    if m:
        woke=mark=float(m[1]);ran=Counter();continue
    m=sw.search(l)
    if m and woke:
        t=float(m[1]);ran[m[2]]+=t-mark;mark=t
        if m[3]=='nginx':
            n+=1
            for k,v in ran.items():
                tot['ffmpeg' if k=='ffmpeg' else 'others']+=v
            if ran['ffmpeg']>2e-4: long+=1; over+=ran['ffmpeg']; longest=max(longest,ran['ffmpeg'])
            elif t-woke>2e-4: tot['long others']+=1
            woke=None
print('%-16s waits %6d  ffmpeg in the way over 0.2 ms: %3d, longest %.2f ms  per wait µs: ffmpeg %.2f, others %.2f  (others over 0.2 ms: %d)'%(sys.argv[1],n,long,longest*1e3,tot['ffmpeg']/n*1e6,tot['others']/n*1e6,tot['long others']),flush=True)
