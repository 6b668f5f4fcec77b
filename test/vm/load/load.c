// load makes the load of the isolation tests inside a virtual machine: threads
// that work and sleep in turn (ls), hogs (be), processes that fork without end
// (storm), a service whose requests are due at random times (serve), daemons
// that wake up at random times (daemons). It is C because a runtime with
// threads and timers of its own would be in the trace; each worker but those of
// serve is a process of one thread, and its name says its class to who reads
// the trace.
//
//	load [-g CGROUP] [-p POLICY] [-s SLICE_NS] [-k] calibrate CPU NS
//	load [-g CGROUP] [-p POLICY] [-s SLICE_NS] [-k] ls    CPUS SLEEP_NS LOOPS FROM TO
//	load [-g CGROUP] [-p POLICY] [-s SLICE_NS] [-k] be    CPUS LOOPS FROM TO
//	load [-g CGROUP] [-p POLICY] [-s SLICE_NS] [-k] storm WORKERS NAP_NS LOOPS FROM TO
//	load [-g CGROUP] [-p POLICY] [-s SLICE_NS] [-k] serve   THREADS SEED GAP_NS LOOPS FROM TO
//	load [-g CGROUP] [-p POLICY] [-s SLICE_NS] [-k] daemons WORKERS SEED GAP_NS LOOPS FROM TO
//
// CPUS has one CPU for each worker ("0,2"), -1 for one that may run anywhere.
// FROM and TO are times of CLOCK_MONOTONIC in nanoseconds: all work until TO, or
// until SIGTERM comes to the process group, and count what happened from FROM
// on. Each worker prints one line of JSON.
// -g enters a cgroup of v2, -p sets a policy by number, -s asks for a time slice,
// -k takes a core-scheduling cookie that all workers share. serve has the threads
// in one process; each has an open-loop schedule of its own, with exponential
// gaps of GAP_NS on average. daemons sleep such a gap after each piece of work.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PR_SCHED_CORE_NR 62
#define SAMPLES 200000

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static volatile uint64_t sink;

static void work(uint64_t loops)
{
	uint64_t x = 1;
	for (uint64_t i = 0; i < loops; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	sink = x;
}

static void pin(int cpu)
{
	cpu_set_t set;
	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("sched_setaffinity");
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

// quantiles prints a sample as an object of JSON.
static int quantiles(char *to, size_t room, const char *name, uint64_t *v, int n)
{
	qsort(v, n, sizeof *v, ascending);
#define AT(percent) (unsigned long)(n ? v[((long)n * (percent) + 99) / 100 - 1] : 0)
	return snprintf(to, room, ",\"%s\":{\"count\":%d,\"p50_ns\":%lu,\"p90_ns\":%lu,\"p99_ns\":%lu,\"max_ns\":%lu}",
			name, n, AT(50), AT(90), AT(99), AT(100));
}

// line prints all of it in one write, so that lines of workers do not mix.
static void line(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		die("write");
}

static void sleep_until(uint64_t when)
{
	struct timespec at = {when / 1000000000, when % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

// gap returns a random time, exponential with this mean. It is never zero.
static uint64_t gap(struct drand48_data *random, uint64_t mean)
{
	double u;
	drand48_r(random, &u);
	return 1 + (uint64_t)(-log(1 - u) * mean);
}

static uint64_t seed, every, work_loops, begin_at, end_at; // of serve and daemons

// a_thread is a thread of serve: it makes its requests one after another, each
// when it is due or, if it is late, at once.
static void *a_thread(void *index)
{
	struct drand48_data random;
	char text[1024];
	int n = 0;
	uint64_t *late = calloc(SAMPLES, sizeof *late), *done = calloc(SAMPLES, sizeof *done);
	if (!late || !done)
		die("calloc");
	prctl(PR_SET_NAME, "load-ls");
	prctl(PR_SET_TIMERSLACK, 1);
	srand48_r(seed * 1000 + (long)index, &random);
	for (uint64_t due = now() + gap(&random, every); due < end_at && !stopped; due += gap(&random, every)) {
		sleep_until(due);
		uint64_t awake = now();
		work(work_loops);
		uint64_t end = now();
		if (due >= begin_at && n < SAMPLES) {
			late[n] = awake - due;
			done[n++] = end - due;
		}
	}
	int at = snprintf(text, sizeof text, "{\"load\":\"serve\",\"thread\":%ld", (long)index);
	at += quantiles(text + at, sizeof text - at, "wake", late, n);
	at += quantiles(text + at, sizeof text - at, "done", done, n);
	snprintf(text + at, sizeof text - at, "}\n");
	line(text);
	return NULL;
}

static int serve(int threads)
{
	pthread_t ids[threads];
	prctl(PR_SET_NAME, "load-ls");
	for (long i = 0; i < threads; i++)
		if ((errno = pthread_create(&ids[i], NULL, a_thread, (void *)i)))
			die("pthread_create");
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}

// a_daemon sleeps and works in turn.
static void a_daemon(int index)
{
	struct drand48_data random;
	srand48_r(seed * 1000 + 500 + index, &random);
	while (now() < end_at && !stopped) {
		sleep_until(now() + gap(&random, every));
		work(work_loops);
	}
}

// ls works for so many loops, sleeps, and notes when it wanted to be awake,
// when it was, and when its work was done.
static void ls(int cpu, uint64_t sleep, uint64_t loops, uint64_t from, uint64_t to)
{
	static uint64_t wake[SAMPLES], done[SAMPLES];
	char text[1024];
	int n = 0;
	for (uint64_t next = now() + sleep; next < to && !stopped;) {
		struct timespec at = {next / 1000000000, next % 1000000000};
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			;
		uint64_t awake = now();
		work(loops);
		uint64_t end = now();
		if (next >= from && n < SAMPLES) {
			wake[n] = awake - next;
			done[n++] = end - next;
		}
		next = end + sleep;
	}
	int at = snprintf(text, sizeof text, "{\"load\":\"ls\",\"cpu\":%d", cpu);
	at += quantiles(text + at, sizeof text - at, "wake", wake, n);
	at += quantiles(text + at, sizeof text - at, "done", done, n);
	snprintf(text + at, sizeof text - at, "}\n");
	line(text);
}

// be works without end, and notes the longest time that so many loops took.
static void be(int cpu, uint64_t loops, uint64_t from, uint64_t to)
{
	char text[256];
	uint64_t rounds = 0, longest = 0;
	for (uint64_t t = now(), end; t < to && !stopped; t = end) {
		work(loops);
		end = now();
		if (t >= from) {
			rounds++;
			longest = end - t > longest ? end - t : longest;
		}
	}
	snprintf(text, sizeof text, "{\"load\":\"be\",\"cpu\":%d,\"rounds\":%lu,\"longest_ns\":%lu,\"policy\":%d}\n", cpu,
		 (unsigned long)rounds, (unsigned long)longest, sched_getscheduler(0));
	line(text);
}

// storm forks a child that works and ends, waits for it, and after a nap goes
// on. A child that is lost is one that it waits for until the end of days.
static void storm(uint64_t nap, uint64_t loops, uint64_t from, uint64_t to)
{
	char text[256];
	uint64_t forks = 0, longest = 0, t;
	int policy = sched_getscheduler(0), wrong = 0, status;
	struct timespec pause = {0, nap};
	while ((t = now()) < to && !stopped) {
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (child == 0) {
			work(loops);
			_exit(sched_getscheduler(0) == policy ? 0 : 1);
		}
		while (waitpid(child, &status, 0) < 0)
			if (errno != EINTR)
				die("waitpid");
		wrong += status != 0;
		if (t >= from) {
			uint64_t took = now() - t;
			forks++;
			longest = took > longest ? took : longest;
		}
		nanosleep(&pause, NULL);
	}
	snprintf(text, sizeof text, "{\"load\":\"storm\",\"rounds\":%lu,\"longest_ns\":%lu,\"wrong\":%d,\"policy\":%d}\n",
		 (unsigned long)forks, (unsigned long)longest, wrong, policy);
	line(text);
}

// calibrate prints how many loops take so many nanoseconds, beside whatever
// else runs: the median of five tries that are long enough to see all of it.
static void calibrate(int cpu, uint64_t ns)
{
	enum { TRIES = 5, LOOPS = 500000 };
	uint64_t took[TRIES];
	pin(cpu);
	for (int i = 0; i < TRIES; i++) {
		uint64_t begun = now();
		work(LOOPS);
		took[i] = now() - begun;
	}
	qsort(took, TRIES, sizeof *took, ascending);
	printf("%lu\n", (unsigned long)(LOOPS * ns / took[TRIES / 2]));
}

static void enter(const char *cgroup)
{
	char name[256];
	snprintf(name, sizeof name, "%s/cgroup.procs", cgroup);
	int fd = open(name, O_WRONLY);
	if (fd < 0 || write(fd, "0", 1) != 1)
		die(name);
	close(fd);
}

static uint64_t number(const char *text)
{
	char *end;
	errno = 0;
	uint64_t n = strtoull(text, &end, 10);
	if (errno || *end || end == text) {
		errno = EINVAL;
		die(text);
	}
	return n;
}

// ask_for_slice sets the time slice of the fair class (Linux 6.12). An older
// kernel ignores it.
static void ask_for_slice(uint64_t ns)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = 48, .runtime = ns};
	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		die("sched_setattr");
}

int main(int argc, char **argv)
{
	int option;
	while ((option = getopt(argc, argv, "+g:p:s:k")) != -1) {
		struct sched_param none = {0};
		switch (option) {
		case 'g':
			enter(optarg);
			break;
		case 'p':
			if (sched_setscheduler(0, number(optarg), &none))
				die("sched_setscheduler");
			break;
		case 's':
			ask_for_slice(number(optarg));
			break;
		case 'k':
			if (prctl(PR_SCHED_CORE_NR, 1 /* create */, 0, 0 /* this thread */, 0))
				die("PR_SCHED_CORE");
			break;
		default:
			return 2;
		}
	}
	argv += optind;
	argc -= optind;
	signal(SIGTERM, stop);
	if (argc == 3 && !strcmp(argv[0], "calibrate")) {
		calibrate(atoi(argv[1]), number(argv[2]));
		return 0;
	}
	int is_serve = argc == 7 && !strcmp(argv[0], "serve"), is_daemons = argc == 7 && !strcmp(argv[0], "daemons");
	if (is_serve || is_daemons) {
		seed = number(argv[2]), every = number(argv[3]), work_loops = number(argv[4]);
		begin_at = number(argv[5]), end_at = number(argv[6]);
	}
	if (is_serve)
		return serve(number(argv[1]));
	int is_ls = argc == 6 && !strcmp(argv[0], "ls");
	int is_be = argc == 5 && !strcmp(argv[0], "be");
	int is_storm = argc == 6 && !strcmp(argv[0], "storm");
	if (!is_ls && !is_be && !is_storm && !is_daemons) {
		fprintf(stderr, "load: see the head of load.c for how to use it\n");
		return 2;
	}
	uint64_t loops = number(argv[argc - 3]), from = number(argv[argc - 2]), to = number(argv[argc - 1]);
	int counted = is_storm || is_daemons;
	int workers = counted ? (int)number(argv[1]) : 1;
	if (!counted)
		for (const char *c = argv[1]; *c; c++)
			workers += *c == ',';
	const char *cpus = argv[1];
	for (int i = 0; i < workers; i++) {
		char *rest = NULL;
		int cpu = counted ? -1 : (int)strtol(cpus, &rest, 10);
		if (rest)
			cpus = rest + (*rest == ',');
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (child == 0) {
			prctl(PR_SET_NAME, is_ls ? "load-ls" : is_be ? "load-be" : is_daemons ? "load-daemon" : "load-storm");
			pin(cpu);
			if (is_ls)
				ls(cpu, number(argv[2]), loops, from, to);
			else if (is_be)
				be(cpu, loops, from, to);
			else if (is_daemons)
				a_daemon(i);
			else
				storm(number(argv[2]), loops, from, to);
			_exit(0);
		}
	}
	int failed = 0, status;
	for (int i = 0; i < workers; i++) {
		pid_t ended;
		while ((ended = wait(&status)) < 0 && errno == EINTR)
			;
		if (ended < 0 || status != 0)
			failed = 1;
	}
	return failed;
}
