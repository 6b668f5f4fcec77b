// SPDX-License-Identifier: Apache-2.0
//
// path is a plugin of QEMU that counts what a guest executes on the way from the
// timer interrupt that wakes a thread to the thread's first instruction. It is
// for scenes with one busy CPU ("lone"): blocks of other CPUs would be counted too.
//
//	gcc -O2 -shared -fPIC -o path.so path.c
//	qemu … -append "… nokaslr" -plugin path.so,entry=A,wake=B,lo=C,hi=D,out=FILE
//
// entry and wake are asm_sysvec_apic_timer_interrupt and hrtimer_wakeup in the
// guest's /proc/kallsyms; lo and hi bound clock_nanosleep in the load program,
// which LS alone calls. FILE gets the quantiles of the paths' lengths and, for each
// block of code in them: address, instructions, how often.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

int qemu_plugin_version = 4;

struct block {
	uint64_t at, hits;
	uint32_t insns;
	struct block *next;
};

enum { BUCKETS = 65536, LONGEST = 60000, LENGTHS = 40000 };

static uint64_t entry, wake, lo, hi;
static char out[256];
static struct block *blocks[BUCKETS], *path[LONGEST];
static int length = -1; // of the path; -1: none has begun
static int woke, was_user;
static uint32_t insns, lengths[LENGTHS];
static uint64_t paths;

static void ran(unsigned cpu, void *data)
{
	struct block *b = data;

	if (b->at < 0x8000000000000000) {
		was_user = 1;
		if (b->at < lo || b->at >= hi)
			return;
		if (length > 0 && woke) {
			for (int i = 0; i < length; i++)
				path[i]->hits++;
			lengths[insns < LENGTHS ? insns : LENGTHS - 1]++;
			paths++;
		}
		length = -1;
		return;
	}
	if (b->at == entry && was_user && (length < 0 || !woke))
		length = insns = woke = 0;
	was_user = 0;
	if (length < 0)
		return;
	if (length == LONGEST) {
		length = -1;
		return;
	}
	path[length++] = b;
	insns += b->insns;
	woke |= b->at == wake;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	uint64_t at = qemu_plugin_tb_vaddr(tb);
	uint32_t n = qemu_plugin_tb_n_insns(tb);
	struct block *b = blocks[at % BUCKETS];

	while (b && (b->at != at || b->insns != n))
		b = b->next;
	if (!b) {
		b = calloc(1, sizeof *b);
		b->at = at, b->insns = n, b->next = blocks[at % BUCKETS];
		blocks[at % BUCKETS] = b;
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, ran, 0, b);
}

static void ended(plugin_id id, void *data)
{
	FILE *f = fopen(out, "w");
	uint64_t seen = 0;

	fprintf(f, "# paths %lu\n", (unsigned long)paths);
	for (int i = 0, percent = 10; i < LENGTHS && percent < 100; i++)
		for (seen += lengths[i]; percent < 100 && seen * 100 >= percent * paths; percent += 20)
			fprintf(f, "# p%d %d\n", percent, i);
	for (int i = 0; i < BUCKETS; i++)
		for (struct block *b = blocks[i]; b; b = b->next)
			if (b->hits)
				fprintf(f, "%lx %u %lu\n", (unsigned long)b->at, b->insns, (unsigned long)b->hits);
	fclose(f);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	struct {
		const char *name;
		uint64_t *to;
	} numbers[] = {{"entry=", &entry}, {"wake=", &wake}, {"lo=", &lo}, {"hi=", &hi}};

	for (int i = 0; i < argc; i++) {
		for (int n = 0; n < 4; n++)
			if (!strncmp(argv[i], numbers[n].name, strlen(numbers[n].name)))
				*numbers[n].to = strtoull(argv[i] + strlen(numbers[n].name), NULL, 16);
		if (!strncmp(argv[i], "out=", 4))
			snprintf(out, sizeof out, "%s", argv[i] + 4);
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
