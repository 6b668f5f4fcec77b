#define _GNU_SOURCE
#include <stdlib.h>
#include <sched.h>
#include <string.h>
#include <stdlib.h>
#include <stdio.h>
#include <stdint.h>
#include <unistd.h>
#include <sys/syscall.h>
struct sa{uint32_t size,policy;uint64_t flags;int32_t nice;uint32_t prio;uint64_t runtime,deadline,period;uint32_t a,b;};
int main(int c,char**v){ if(getenv("BESLICE")){struct sa a={.size=sizeof a,.policy=getenv("BEIDLE")?5:0,.runtime=atol(getenv("BESLICE"))};if(syscall(SYS_sched_setattr,0,&a,0))perror("setattr");} if(c>1&&!strcmp(v[1],"idle")){struct sched_param p={0};if(sched_setscheduler(0,SCHED_IDLE,&p))abort();} volatile unsigned long x=0; for(;;)x++; }
