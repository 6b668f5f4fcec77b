#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <stdlib.h>
// pace WORK_US PERIOD_US SHARED: works, then sleeps to the next period.
#include <stdio.h>
#include <stdint.h>
#include <unistd.h>
#include <sys/syscall.h>
struct sa{uint32_t size,policy;uint64_t flags;int32_t nice;uint32_t prio;uint64_t runtime,deadline,period;uint32_t a,b;};
int main(int c,char**v){ if(getenv("BESLICE")){struct sa a={.size=sizeof a,.policy=getenv("BEIDLE")?5:0,.runtime=atol(getenv("BESLICE"))};if(syscall(SYS_sched_setattr,0,&a,0))perror("setattr");} long long w=atol(v[1])*1000,p=atol(v[2])*1000; struct timespec t; clock_gettime(CLOCK_MONOTONIC,&t); long long due=t.tv_sec*1000000000LL+t.tv_nsec;
 srand48(due); due+=drand48()*p;
 for(;;){ struct timespec q; clock_gettime(CLOCK_THREAD_CPUTIME_ID,&q); long long e=q.tv_sec*1000000000LL+q.tv_nsec+w; do clock_gettime(CLOCK_THREAD_CPUTIME_ID,&q); while(q.tv_sec*1000000000LL+q.tv_nsec<e);
  due+=p; t.tv_sec=due/1000000000LL;t.tv_nsec=due%1000000000LL; clock_nanosleep(CLOCK_MONOTONIC,TIMER_ABSTIME,&t,0);} }
