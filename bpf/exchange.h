/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_EXCHANGE_H
#define TENON_EXCHANGE_H

/*
 * The interface between exchange.bpf.c and user space (as tenon.h is that of
 * delay.bpf.c), and the state of a connection, which needs no kernel.
 */

enum tenon_exchange_limit {
	TENON_SERVICES = 64, /* services that are measured at a time */
	TENON_PARTS = 128,   /* buckets of a histogram, a power of two */
	TENON_PORT_WORDS = 1024, /* a bit for each port */
};

/* A service: a port inside of a cgroup and all cgroups below it. */
struct tenon_listen {
	__u64 cgroup; /* inode number of its directory */
	__u32 port;
	__u32 pad;
};

/* The exchanges of a service. Bucket n holds those that took at most bounds[n], and more than bounds[n-1]. */
struct tenon_service {
	__u64 bounds[TENON_PARTS]; /* ns; written by user space; all bits after the last one */
	__u64 counts[TENON_PARTS];
	/* What cannot be told, and is in no bucket: */
	__u64 overlapped; /* answers after data that came at different times: more than one request, perhaps */
	__u64 unasked;	  /* data that was sent long after an answer, or without a request */
	__u64 missed;	  /* exchanges of which a program did not see the begin or the end */
};

/*
 * A connection. An exchange begins with the first data that arrives after an
 * answer, and ends with the first data that the service sends after that.
 * Times are in ns.
 *
 * Requests overlap if the client has written more before the answer. Which answer
 * belongs to which request cannot be seen then, nor when it ends: a client that
 * sends a request for each answer keeps several under way for ever. So the
 * connection is mixed until it has been quiet for so long that none is left.
 *
 * A program may miss data: the kernel skips a run where another run of the same
 * program was interrupted or preempted on this CPU. The numbers of TCP move on all
 * the same. So a connection notes how far it has seen them, and an exchange of which
 * the begin or the end is missing counts as missed, and not in a bucket. The
 * last exchange of a connection is in no count if its answer was not seen.
 */
struct tenon_connection {
	__u64 first; /* arrival of the first and the last data since the last answer; 0: none has come */
	__u64 last;
	__u64 sent;   /* when data was last sent; 0: not yet */
	__u64 took;   /* the length of the last exchange */
	__u64 cgroup; /* of the thread that last sent data; the numbers below are of it */
	__u32 generation; /* of the table of services */
	__u32 epoch;	  /* of the times above */
	__u32 seen;	/* sequence number after the last data of which the arrival was seen */
	__u32 written;	/* sequence number after the last data that was sent when first came */
	__u8 service;	/* index + 1; 0: it belongs to no service */
	__u8 pushed;	/* what has arrived since the last answer has the end of a write */
	__u8 doubtful;	/* so has what came before it, in the same exchange */
	__u8 mixed;	/* requests overlap */
	__u8 answers;	/* up to TENON_OPENING */
	__u8 gap;	/* the arrival of something since the last answer was not seen */
	__u8 missed;	/* exchanges that are not yet counted as such */
};

/* Where TCP is, before it takes the data with which a program is called. */
struct tenon_numbers {
	__u32 received; /* the next one to arrive in order */
	__u32 written;	/* the next one to send */
};

#define TENON_QUIET 1000000000ULL /* ns */

/*
 * In this many exchanges of a new connection, a second write costs the exchange,
 * but does not make the connection mixed. With TLS 1.3 the client writes the end of
 * the handshake and its first request without an answer in between.
 */
#define TENON_OPENING 2

enum tenon_outcome {
	TENON_NOTHING, /* the data belongs to an answer that has begun, or the exchange is missed */
	TENON_EXCHANGE,
	TENON_OVERLAPPED,
	TENON_UNASKED,
};

/*
 * loose returns how long a pause within a request, or within its answer, may be.
 * After a longer one, the data may as well belong to another request.
 */
static __always_inline __u64 loose(__u64 took)
{
	return took / 4 + 20000;
}

/* miss notes an exchange that cannot be counted. */
static __always_inline void miss(struct tenon_connection *c)
{
	if (c->missed < 255)
		c->missed++;
}

/* is_after compares sequence numbers, which wrap around. */
static __always_inline bool is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/*
 * arrived notes that data has come which ends before the sequence number end.
 * push: it has the end of a write of the client.
 */
static __always_inline void arrived(struct tenon_connection *c, struct tenon_numbers tcp, __u32 end, __u64 now, bool push)
{
	__u64 active = c->sent > c->last ? c->sent : c->last;

	if (now - active >= TENON_QUIET)
		c->mixed = 0;
	if (c->first && tcp.written != c->written) { /* the answer was not seen */
		miss(c);
		c->first = 0;
		c->gap = 0;
	}
	if (is_after(tcp.received, c->seen))
		c->gap = 1;
	if (is_after(end, c->seen))
		c->seen = end;
	if (!c->first) {
		c->first = now;
		c->written = tcp.written;
		c->pushed = 0;
		c->doubtful = 0;
	} else if (c->pushed) {
		if (c->doubtful || c->answers >= TENON_OPENING)
			c->mixed = 1;
		c->doubtful = 1;
	}
	c->pushed |= push;
	c->last = now;
}

/* forget drops the exchange that has begun. */
static __always_inline void forget(struct tenon_connection *c, struct tenon_numbers tcp)
{
	c->first = 0;
	c->seen = tcp.received;
	c->gap = 0;
	c->missed = 0;
}

/* answered notes that data is sent. After TENON_EXCHANGE, took is the length of the exchange. */
static __always_inline enum tenon_outcome answered(struct tenon_connection *c, struct tenon_numbers tcp, __u64 now)
{
	__u64 spread = c->last - c->first;
	__u64 pause = now - c->sent; /* long if nothing was sent yet */
	__u64 first = c->first;
	bool gap = c->gap || is_after(tcp.received, c->seen);

	c->sent = now;
	c->first = 0;
	c->gap = 0;
	if (is_after(tcp.received, c->seen))
		c->seen = tcp.received;
	if (gap || (first && tcp.written != c->written)) {
		miss(c);
		return TENON_NOTHING;
	}
	if (!first)
		return pause > loose(c->took) ? TENON_UNASKED : TENON_NOTHING;
	c->took = now - first;
	if (c->answers < TENON_OPENING)
		c->answers++;
	return c->mixed || c->doubtful || spread > loose(c->took) ? TENON_OVERLAPPED : TENON_EXCHANGE;
}

#endif
