#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
// ls MEAN_US WORK_US SECONDS SEED: sleeps an exponential time, works, prints wake-up delays.
static long long now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1000000000LL+t.tv_nsec;}
static int cmp(const void*a,const void*b){long long x=*(long long*)a,y=*(long long*)b;return x<y?-1:x>y;}
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <stdint.h>
struct sa{uint32_t size,policy;uint64_t flags;int32_t nice;uint32_t prio;uint64_t runtime,deadline,period;uint32_t a,b;};
int main(int c,char**v){ prctl(PR_SET_TIMERSLACK,1); if(getenv("SLICE")){struct sa a={.size=sizeof a,.runtime=atol(getenv("SLICE"))};if(syscall(SYS_sched_setattr,0,&a,0))perror("setattr");}
 double mean=atof(v[1])*1e3; long long work=atof(v[2])*1e3; double secs=atof(v[3]); srand48(atol(v[4]));
 int n=0,cap=1<<20; long long*d=malloc(cap*sizeof*d);
 extern double log(double);
 long long end=now()+secs*1e9,due=now();
 long long late=0;
 char b[128];int f=open("/proc/self/schedstat",O_RDONLY);
 unsigned long long r0,w0,s0,r1,w1,s1; int k=pread(f,b,127,0);b[k]=0;sscanf(b,"%llu %llu %llu",&r0,&w0,&s0);
 while(now()<end&&n<cap){
  due=now()+(long long)(-log(1-drand48())*mean)+20000;
  struct timespec t={due/1000000000LL,due%1000000000LL};
  clock_nanosleep(CLOCK_MONOTONIC,TIMER_ABSTIME,&t,0);
  d[n]=now()-due; if(d[n]>1000000)late++; n++;
  long long until; struct timespec q; clock_gettime(CLOCK_THREAD_CPUTIME_ID,&q); until=q.tv_sec*1000000000LL+q.tv_nsec+work;
  do clock_gettime(CLOCK_THREAD_CPUTIME_ID,&q); while(q.tv_sec*1000000000LL+q.tv_nsec<until);
 }
 k=pread(f,b,127,0);b[k]=0;sscanf(b,"%llu %llu %llu",&r1,&w1,&s1);
 qsort(d,n,sizeof*d,cmp); double m=0; for(int i=0;i<n;i++)m+=d[i];
 printf("n %d mean %.1f p50 %.1f p99 %.1f p99.9 %.1f max %.0f late1ms %.4f%% rqdelay %.2f\n",n,m/n/1e3,d[n/2]/1e3,d[(int)(n*.99)]/1e3,d[(int)(n*.999)]/1e3,d[n-1]/1e3,100.*late/n,(w1-w0)/1e3/(s1-s0));
}
