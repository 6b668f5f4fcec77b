#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* svc WORKERS MEAN_US WORK_US SECONDS SEED: each worker sleeps an exponential
   time, works an exponential time, and notes how late it woke and how long its
   work took beyond the CPU time of it. */
static long long at(clockid_t c) { struct timespec t; clock_gettime(c, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
static int cmp(const void *a, const void *b) { long long x = *(long long *)a, y = *(long long *)b; return (x > y) - (x < y); }
static double expo(double mean) { return -log(1 - drand48()) * mean; }
enum { CAP = 1 << 18 };
struct out { long n; unsigned long long wait, slices; long long late[CAP], span[CAP]; };
static void stat(unsigned long long *w, unsigned long long *s)
{
	char b[128]; unsigned long long r;
	int f = open("/proc/self/schedstat", O_RDONLY), k = read(f, b, 127);
	b[k] = 0; close(f); sscanf(b, "%llu %llu %llu", &r, w, s);
}
int main(int c, char **v)
{
	int workers = atoi(v[1]);
	double mean = atof(v[2]) * 1e3, work = atof(v[3]) * 1e3;
	struct out *o = mmap(0, workers * sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long long end = at(CLOCK_MONOTONIC) + atof(v[4]) * 1e9;
	for (int i = 0; i < workers; i++) if (!fork()) {
		prctl(PR_SET_TIMERSLACK, 1); srand48(atol(v[5]) * 100 + i);
		unsigned long long w0, s0, w1, s1; stat(&w0, &s0);
		while (at(CLOCK_MONOTONIC) < end && o[i].n < CAP) {
			long long due = at(CLOCK_MONOTONIC) + expo(mean) + 20000;
			struct timespec t = { due / 1000000000LL, due % 1000000000LL };
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
			long long woke = at(CLOCK_MONOTONIC), cpu = at(CLOCK_THREAD_CPUTIME_ID), much = expo(work);
			while (at(CLOCK_THREAD_CPUTIME_ID) < cpu + much);
			o[i].late[o[i].n] = woke - due;
			o[i].span[o[i].n++] = at(CLOCK_MONOTONIC) - due - much;
		}
		stat(&w1, &s1); o[i].wait = w1 - w0; o[i].slices = s1 - s0; _exit(0);
	}
	while (wait(0) > 0);
	long n = 0; unsigned long long wait = 0, slices = 0;
	long long *late = malloc(sizeof *late * CAP * workers), *span = malloc(sizeof *span * CAP * workers);
	for (int i = 0; i < workers; i++) {
		for (long k = 0; k < o[i].n; k++) { late[n] = o[i].late[k]; span[n++] = o[i].span[k]; }
		wait += o[i].wait; slices += o[i].slices;
	}
	qsort(late, n, sizeof *late, cmp); qsort(span, n, sizeof *span, cmp);
	printf("n %ld wake50 %.1f wake99 %.1f wake999 %.1f extra50 %.1f extra99 %.1f extra999 %.1f rqdelay %.2f\n", n,
	       late[n / 2] / 1e3, late[(long)(n * .99)] / 1e3, late[(long)(n * .999)] / 1e3,
	       span[n / 2] / 1e3, span[(long)(n * .99)] / 1e3, span[(long)(n * .999)] / 1e3, wait / 1e3 / slices);
}
