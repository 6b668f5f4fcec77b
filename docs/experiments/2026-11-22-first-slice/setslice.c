#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <unistd.h>
#include <sys/syscall.h>
struct sa{uint32_t size,policy;uint64_t flags;int32_t nice;uint32_t prio;uint64_t runtime,deadline,period;uint32_t a,b;};
/* setslice NS TID... */
int main(int c,char**v){ int bad=0; for(int i=2;i<c;i++){struct sa a={.size=sizeof a};
 if(syscall(SYS_sched_getattr,atoi(v[i]),&a,sizeof a,0)){bad++;continue;} a.size=sizeof a; a.flags=0; a.runtime=atoll(v[1]);a.deadline=a.period=0;
 if(syscall(SYS_sched_setattr,atoi(v[i]),&a,0)){perror("setattr");bad++;}
 else { syscall(SYS_sched_getattr,atoi(v[i]),&a,sizeof a,0); if(i==2) fprintf(stderr,"slice now %llu policy %u\n",(unsigned long long)a.runtime,a.policy);} } return bad; }
