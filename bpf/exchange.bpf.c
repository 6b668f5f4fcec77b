// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * How long services take to answer requests over TCP: from the arrival of data
 * at a socket to the first data that is sent after it.
 *
 * The programs read lengths, sequence numbers and times, never the data itself.
 * A socket belongs to the service whose port it has and whose cgroup contains
 * the thread that sends the answer. The kernel holds the lock of the socket at
 * both hooks, so a connection needs no lock of its own.
 *
 * Each segment of the node passes the first hook, and all data that the node
 * sends the second. Unless somewhere a service has the local port, a program
 * ends after one test of a bit.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "cgroup.bpf.h"
#include "exchange.h"

/* The kernel offers the types that these programs read to GPL programs only. */
char LICENSE[] SEC("license") = "GPL";

/* Written by user space: versions of the table of services, and of the set of ports. */
__u32 generation = 1;
__u32 epoch = 1;

__u64 ports[TENON_PORT_WORDS]; /* written by user space: a bit for each port that a service has */

__u64 unseen = 0; /* data at connections for which there was no memory */

/* Unused variable that makes bpf2go generate the numbers of the enum. */
const enum tenon_exchange_limit *limits;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TENON_SERVICES);
	__type(key, struct tenon_listen);
	__type(value, __u32); /* index in services + 1 */
} listens SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TENON_SERVICES);
	__type(key, __u32);
	__type(value, struct tenon_service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tenon_connection);
} connections SEC(".maps");

static __always_inline bool is_served(const struct sock *sk)
{
	__u32 port = sk->__sk_common.skc_num;

	return ports[port / 64] >> (port % 64) & 1;
}

/*
 * Without these functions (before Linux 6.11), a program may be preempted. All runs of
 * it on the same CPU are skipped then until it goes on, and exchanges are missed just
 * when threads wait for CPUs. A tracepoint may be preempted from Linux 7.0 on, and the
 * entry of a function in any preemptible kernel.
 */
void bpf_preempt_disable(void) __ksym __weak;
void bpf_preempt_enable(void) __ksym __weak;

static __always_inline void stay(void)
{
	if (bpf_preempt_disable)
		bpf_preempt_disable();
}

static __always_inline void may_go(void)
{
	if (bpf_preempt_disable)
		bpf_preempt_enable();
}

/* CLOSE_WAIT is a state of TCP: the client has ended its stream. */
#define CLOSE_WAIT 8

/* numbers_of returns where a connection is. The end of the stream has a number, but no data. */
static __always_inline struct tenon_numbers numbers_of(const struct tcp_sock *tp)
{
	bool ended = tp->inet_conn.icsk_inet.sk.__sk_common.skc_state == CLOSE_WAIT;

	return (struct tenon_numbers){.received = tp->rcv_nxt - ended, .written = tp->write_seq};
}

/* connection_of returns the state of a socket, or 0 if there is no memory for it. */
static __always_inline struct tenon_connection *connection_of(const struct sock *sk, struct tenon_numbers tcp)
{
	struct tenon_connection *c;

	c = bpf_sk_storage_get(&connections, (void *)sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!c) {
		__sync_fetch_and_add(&unseen, 1);
		return 0;
	}
	if (c->epoch != epoch) { /* the times are from before a gap */
		forget(c, tcp);
		c->sent = 0;
		c->epoch = epoch;
	}
	return c;
}

/* find looks for the service of a connection: the nearest cgroup above a thread that has the port. */
static __noinline void find(struct tenon_connection *c, struct cgroup *cg, __u64 cgroup, __u32 port)
{
	struct tenon_listen key = {.port = port};
	__u32 *service = 0;
	__u32 of = generation; /* before the table is read */
	int i;

	for (i = 0; i < CGROUP_DEPTH && cg; i++) {
		key.cgroup = BPF_CORE_READ(cg, kn, id);
		service = bpf_map_lookup_elem(&listens, &key);
		if (service)
			break;
		cg = BPF_CORE_READ(cg, self.parent, cgroup);
	}
	c->service = service ? *service : 0;
	c->cgroup = cgroup;
	c->generation = of;
}

/* service_of returns the service in which the present thread sends data, or 0. */
static __always_inline struct tenon_service *service_of(struct tenon_connection *c, const struct sock *sk)
{
	struct cgroup *cg = cgroup_of(bpf_get_current_task_btf());
	__u64 id = cg->kn->id;
	__u32 index;

	if (c->cgroup != id || c->generation != generation)
		find(c, cg, id, sk->__sk_common.skc_num);
	index = (__u32)c->service - 1; /* no service: out of range */
	return bpf_map_lookup_elem(&services, &index);
}

/*
 * is_foreign reports whether the last answer of a connection came from a cgroup without
 * the service. What arrives then needs no time. Should a service send the next answer,
 * it counts as missed.
 */
static __always_inline bool is_foreign(const struct tenon_connection *c)
{
	return c->cgroup && !c->service && c->generation == generation;
}

/* bucket finds the first bound that is not less than ns. */
static __always_inline __u32 bucket(const struct tenon_service *s, __u64 ns)
{
	__u32 at = 0;
	__u32 step;

#pragma unroll
	for (step = TENON_PARTS / 2; step; step /= 2) {
		__u32 next = at + step;

		barrier_var(next); /* keeps the mask, by which the verifier knows the range */
		if (ns > s->bounds[(next - 1) % TENON_PARTS])
			at = next;
	}
	return at % TENON_PARTS;
}

/* tell_missed counts the exchanges of a connection that were missed. */
static __always_inline void tell_missed(struct tenon_connection *c, struct tenon_service *s)
{
	if (c->missed) {
		__sync_fetch_and_add(&s->missed, c->missed);
		c->missed = 0;
	}
}

/* In the low byte of tcp_flags. */
#define TCP_FIN 0x01
#define TCP_PSH 0x08

/* read_cb reads a field of the data that TCP keeps in a segment. */
#define read_cb(skb, type, field) \
	(*(const type *)((const char *)(skb)->cb + bpf_core_field_offset(struct tcp_skb_cb, field)))

static __always_inline void receiving(struct sock *sk, struct sk_buff *skb)
{
	struct tenon_connection *c;
	struct tenon_numbers tcp;
	struct tenon_service *s;
	struct tcp_sock *tp;
	__u32 start, end, index;
	__u8 flags;

	start = read_cb(skb, __u32, seq);
	end = read_cb(skb, __u32, end_seq);
	flags = read_cb(skb, __u8, tcp_flags);
	end -= flags & TCP_FIN; /* the end of the stream has a number, but no data */
	if (start == end)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	tcp = numbers_of(tp);
	if (!is_after(end, tcp.received)) /* the data has come before */
		return;
	c = connection_of(sk, tcp);
	if (!c || is_foreign(c))
		return;
	arrived(c, tcp, end, bpf_ktime_get_ns(), flags & TCP_PSH);
	if (c->missed && c->generation == generation) { /* there may be no other answer */
		index = (__u32)c->service - 1;
		s = bpf_map_lookup_elem(&services, &index);
		if (s)
			tell_missed(c, s);
	}
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(tenon_arrived, struct sock *sk, struct sk_buff *skb)
{
	if (!is_served(sk))
		return 0;
	stay();
	receiving(sk, skb);
	may_go();
	return 0;
}

static __always_inline void sending(const struct sock *sk)
{
	struct tenon_connection *c;
	struct tenon_numbers tcp;
	struct tenon_service *s;
	struct tcp_sock *tp;
	__u32 n;

	tp = bpf_skc_to_tcp_sock((void *)sk);
	if (!tp)
		return;
	tcp = numbers_of(tp);
	c = connection_of(sk, tcp);
	if (!c)
		return;
	s = service_of(c, sk);
	if (!s) {
		forget(c, tcp);
		return;
	}
	switch (answered(c, tcp, bpf_ktime_get_ns())) {
	case TENON_EXCHANGE:
		n = bucket(s, c->took);
		__sync_fetch_and_add(&s->counts[n % TENON_PARTS], 1);
		break;
	case TENON_OVERLAPPED:
		__sync_fetch_and_add(&s->overlapped, 1);
		break;
	case TENON_UNASKED:
		__sync_fetch_and_add(&s->unasked, 1);
		break;
	case TENON_NOTHING:
		break;
	}
	tell_missed(c, s);
}

static __always_inline int sent(const struct sock *sk)
{
	if (!is_served(sk))
		return 0;
	stay();
	sending(sk);
	may_go();
	return 0;
}

/* One of the two programs below is loaded. The tracepoint is there from Linux 6.16 on. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(tenon_at_tracepoint, const struct sock *sk)
{
	return sent(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(tenon_at_function, struct sock *sk, struct msghdr *msg, unsigned long size)
{
	return size ? sent(sk) : 0;
}
