# slices.py TID...: how many threads have which slice, in ms
import ctypes,struct,sys,collections
libc=ctypes.CDLL(None,use_errno=True); c=collections.Counter()
for t in sys.argv[1:]:
    b=ctypes.create_string_buffer(56)
    if libc.syscall(315,int(t),b,56,0)==0: c[struct.unpack_from('Q',b,24)[0]/1e6]+=1
print(' '.join('%g:%d'%x for x in sorted(c.items())))
