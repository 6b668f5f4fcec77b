// SPDX-License-Identifier: Apache-2.0
/*
 * Connections with random requests, whose times are known, and what the
 * functions of bpf/exchange.h make of them. Prints a line for each window: the
 * kind of its connections; the requests, and how many of them took longer than
 * the target; the exchanges that were measured, how many of these were longer,
 * and how often it could not be told.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned char __u8;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

#include "../../../bpf/exchange.h"

#define US 1000ULL
#define MS (1000 * US)
#define MOST 4096 /* events of a connection */

static __u64 random_state;

static __u64 random_below(__u64 n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

/* random_time returns a time between 1/spread of a time and that time. */
static __u64 random_time(__u64 most, __u64 spread)
{
	__u64 least = most / spread;

	return least + random_below(most - least + 1);
}

enum what { PIECE, REQUEST, ANSWER }; /* a part of a request without its end; its end */

struct event {
	__u64 at;
	enum what what;
};

static struct window {
	__u64 target;
	__u64 requests, over; /* the truth */
	__u64 total, long_ones, unsure;
	__u64 skipped; /* of 10,000 runs of the programs */
} w;

static struct event events[MOST];
static int used;

static void add(__u64 at, enum what what)
{
	if (used < MOST)
		events[used++] = (struct event){at, what};
}

static int compare(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* play gives the events of a connection to the functions that the kernel calls, but for the runs that it skips. */
static void play(void)
{
	struct tenon_numbers tcp = {.received = random_below(1ULL << 32), .written = random_below(1ULL << 32)};
	struct tenon_connection c = {.seen = tcp.received};
	int i;

	qsort(events, used, sizeof(events[0]), compare);
	for (i = 0; i < used; i++) {
		bool skipped = random_below(10000) < w.skipped;
		__u32 bytes = 1 + random_below(1000);

		if (events[i].what != ANSWER) {
			if (!skipped)
				arrived(&c, tcp, tcp.received + bytes, events[i].at, events[i].what == REQUEST);
			tcp.received += bytes;
			continue;
		}
		if (skipped) {
			tcp.written += bytes;
			continue;
		}
		switch (answered(&c, tcp, events[i].at)) {
		case TENON_EXCHANGE:
			w.total++;
			w.long_ones += c.took > w.target;
			break;
		case TENON_OVERLAPPED:
		case TENON_UNASKED:
			w.unsure++;
			break;
		case TENON_NOTHING:
			break;
		}
		w.unsure += c.missed;
		c.missed = 0;
		tcp.written += bytes;
	}
	used = 0;
}

static void ask(__u64 took)
{
	w.requests++;
	w.over += took > w.target;
}

/* duration returns how long a request takes: some are beyond the target. */
static __u64 duration(__u64 long_in_1000)
{
	if (random_below(1000) < long_in_1000)
		return random_time(5 * w.target, 5);
	return random_time(w.target, 20);
}

/* in_turn has one request at a time. With pieces, some come and are answered in several. */
static void in_turn(int n, __u64 long_in_1000, int pieces)
{
	__u64 now = MS;

	while (n--) {
		__u64 took = duration(long_in_1000);
		__u64 part = pieces ? random_below(took / 8 + 20 * US) : 0;
		__u64 sent;
		int i;

		ask(took);
		if (part && part < took) {
			add(now, PIECE);
			add(now + part, REQUEST);
		} else {
			add(now, REQUEST);
		}
		sent = now + took;
		add(sent, ANSWER);
		for (i = random_below(4); pieces && i > 0; i--) {
			sent += random_below(took / 4 + 20 * US);
			add(sent, ANSWER);
		}
		now = sent + 1 + random_below(2 * MS);
	}
	play();
}

/* streams has several requests at a time. With control, each is acknowledged at once. */
static void streams(int n, __u64 long_in_1000, __u64 gap, int control)
{
	__u64 now = MS;

	while (n--) {
		__u64 took = duration(long_in_1000);

		ask(took);
		add(now, REQUEST);
		if (control)
			add(now + random_time(took / 2, 10), ANSWER);
		add(now + took, ANSWER);
		now += random_below(gap);
	}
	play();
}

/* in_loop has several clients on a connection, each of which sends a request for each answer. */
static void in_loop(int n, __u64 long_in_1000)
{
	__u64 ends[8];
	int i, clients = 2 + random_below(7);

	for (i = 0; i < clients; i++)
		ends[i] = MS + i * random_below(50 * US);
	while (n--) {
		__u64 took = duration(long_in_1000), now;
		int next = 0;

		for (i = 1; i < clients; i++)
			if (ends[i] < ends[next])
				next = i;
		now = ends[next] + 30 * US + random_below(30 * US);
		ask(took);
		add(now, REQUEST);
		ends[next] = now + took;
		add(ends[next], ANSWER);
	}
	play();
}

/* pipelined sends several requests together, which are served one after the other. */
static void pipelined(int n, __u64 long_in_1000)
{
	__u64 now = MS;

	while (n > 0) {
		__u64 end = now;
		int i, depth = 2 + random_below(7);

		for (i = 0; i < depth && n > 0; i++, n--) {
			__u64 came = now + i * 5 * US;

			if (end < came)
				end = came;
			end += duration(long_in_1000) / depth;
			ask(end - came);
			add(came, REQUEST);
			add(end, ANSWER);
		}
		now = end + 1 + random_below(MS);
	}
	play();
}

int main(int argc, char **argv)
{
	int windows = argc > 1 ? atoi(argv[1]) : 1000;

	random_state = argc > 2 ? strtoull(argv[2], 0, 10) * 2654435761 + 1 : 1;
	while (windows--) {
		static const char *const kinds[] = {"one-at-a-time", "in-pieces", "streams", "controlled", "in-loop", "pipelined", "skipped", "skipped-often"};
		int kind = random_below(8), connections = 1 + random_below(8);
		__u64 long_in_1000 = random_below(30);

		w = (struct window){.target = random_time(50 * MS, 500)};
		while (connections--) {
			int n = 100 + random_below(400);

			switch (kind) {
			case 0:
			case 1:
				in_turn(n, long_in_1000, kind);
				break;
			case 2:
			case 3:
				streams(n, long_in_1000, w.target / (1 + random_below(20)) + 1, kind == 3);
				break;
			case 4:
				in_loop(n, long_in_1000);
				break;
			case 5:
				pipelined(n, long_in_1000);
				break;
			case 6:
			case 7: /* one at a time */
				w.skipped = kind == 6 ? 20 : 1000;
				in_turn(n, long_in_1000, random_below(2));
				break;
			}
		}
		printf("%s %llu %llu %llu %llu %llu\n", kinds[kind], w.requests, w.over, w.total, w.long_ones, w.unsure);
	}
	return 0;
}
