//go:build ibverbs && linux && cgo

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "stub.h"

#define SLOTS 1024

/* What a device would be given: about what a WRITE of one SGE is in hardware. */
struct slot {
	uint64_t id, remote, local;
	uint32_t opcode, flags, rkey, lkey, length, sges;
};

struct stub {
	struct ibv_qp qp;
	struct ibv_context context;
	uint32_t next;
	struct slot ring[SLOTS];
};

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct stub *s = (struct stub *)qp;

	for (; wr; wr = wr->next) {
		struct slot *out = &s->ring[s->next % SLOTS];
		int i;

		if (wr->num_sge > 4) {
			*bad = wr;
			return 22;
		}
		out->id = wr->wr_id;
		out->opcode = wr->opcode;
		out->flags = wr->send_flags;
		out->remote = wr->wr.rdma.remote_addr;
		out->rkey = wr->wr.rdma.rkey;
		out->sges = wr->num_sge;
		for (i = 0; i < wr->num_sge; i++) {
			out->local = wr->sg_list[i].addr;
			out->length = wr->sg_list[i].length;
			out->lkey = wr->sg_list[i].lkey;
		}
		s->next++;
	}
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return 0;
}

struct ibv_qp *pc_stub(void)
{
	struct stub *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->qp.context = &s->context;
	s->qp.qp_type = IBV_QPT_RC;
	s->context.ops.post_send = post_send;
	return &s->qp;
}

void pc_free(struct ibv_qp *qp)
{
	free(qp);
}

uint64_t pc_sum(const struct ibv_qp *qp)
{
	const struct stub *s = (const struct stub *)qp;
	uint64_t sum = s->next % SLOTS;
	uint32_t i;

	for (i = 0; i < SLOTS; i++) {
		const struct slot *o = &s->ring[i];

		sum = sum * 31 + (o->id ^ o->remote ^ o->local ^ o->opcode ^ o->flags ^ o->rkey ^ o->lkey ^ o->length ^ o->sges);
	}
	return sum;
}

int64_t pc_post(struct ibv_qp *qp, const struct pc_transfer *t, uint32_t n, uint32_t rounds)
{
	struct ibv_send_wr wrs[64], *bad;
	struct ibv_sge sges[64];
	struct timespec from, to;
	uint32_t r, i;

	if (n == 0 || n > 64)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (r = 0; r < rounds; r++) {
		for (i = 0; i < n; i++) {
			struct ibv_send_wr *wr = &wrs[i];

			sges[i].addr = t[i].local;
			sges[i].length = t[i].length;
			sges[i].lkey = t[i].lkey;
			memset(wr, 0, sizeof(*wr));
			wr->wr_id = i;
			wr->next = i + 1 < n ? wr + 1 : NULL;
			wr->sg_list = &sges[i];
			wr->num_sge = 1;
			wr->opcode = IBV_WR_RDMA_WRITE;
			wr->send_flags = i + 1 < n ? 0 : IBV_SEND_SIGNALED;
			wr->wr.rdma.remote_addr = t[i].remote;
			wr->wr.rdma.rkey = t[i].rkey;
		}
		if (ibv_post_send(qp, wrs, &bad))
			return -1;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
}

void pc_empty(uintptr_t qp, const struct pc_transfer *wrs, uint32_t n, const struct pc_transfer *sges, uint32_t num_sges)
{
	(void)qp;
	(void)wrs;
	(void)n;
	(void)sges;
	(void)num_sges;
}

int pc_post_filled(uintptr_t qp, uintptr_t wrs)
{
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send((struct ibv_qp *)qp, (struct ibv_send_wr *)wrs, &bad);
}
