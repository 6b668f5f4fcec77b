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
 */
struct tenon_connection {
	__u64 first; /* arrival of the first and the last data since the last answer; 0: none has come */
	__u64 last;
	__u64 sent;   /* when data was last sent; 0: not yet */
	__u64 took;   /* the length of the last exchange */
	__u64 cgroup; /* of the thread that last sent data; the numbers below are of it */
	__u32 generation; /* of the table of services */
	__u32 service;	  /* index + 1; 0: it belongs to no service */
	__u32 epoch;	  /* of the times above */
	__u8 pushed;	/* what has arrived since the last answer has the end of a write */
	__u8 doubtful;	/* so has what came before it, in the same exchange */
	__u8 mixed;	/* requests overlap */
	__u8 answers;	/* up to TENON_OPENING */
};

#define TENON_QUIET 1000000000ULL /* ns */

/*
 * In this many exchanges of a new connection, a second write costs the exchange,
 * but does not make the connection mixed. With TLS 1.3 the client writes the end of
 * the handshake and its first request without an answer in between.
 */
#define TENON_OPENING 2

enum tenon_outcome {
	TENON_NOTHING, /* the data belongs to an answer that has begun */
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

/* arrived notes that data has come. push: it has the end of a write of the client. */
static __always_inline void arrived(struct tenon_connection *c, __u64 now, bool push)
{
	__u64 active = c->sent > c->last ? c->sent : c->last;

	if (now - active >= TENON_QUIET)
		c->mixed = 0;
	if (!c->first) {
		c->first = now;
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

/* answered notes that data is sent. After TENON_EXCHANGE, took is the length of the exchange. */
static __always_inline enum tenon_outcome answered(struct tenon_connection *c, __u64 now)
{
	__u64 spread = c->last - c->first;
	__u64 pause = now - c->sent; /* long if nothing was sent yet */

	c->sent = now;
	if (!c->first)
		return pause > loose(c->took) ? TENON_UNASKED : TENON_NOTHING;
	c->took = now - c->first;
	c->first = 0;
	if (c->answers < TENON_OPENING)
		c->answers++;
	return c->mixed || c->doubtful || spread > loose(c->took) ? TENON_OVERLAPPED : TENON_EXCHANGE;
}

#endif
