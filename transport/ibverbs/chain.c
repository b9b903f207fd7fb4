//go:build ibverbs && linux && cgo

/* Posting by ibv_post_send, which every provider has. */

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "shim.h"

/*
 * Requests are converted on the stack, in chunks: no queue pair has to own a request array, and no
 * stale pointer to Go memory stays behind. The other way, filling requests and SGEs in C's memory
 * from Go, with the same checks, takes longer (117 ns for a chain of 16 against 103, of which the
 * crossing is 21: "bench postcost").
 */
#define CHUNK 64

/* Verbs numbers its operations in another way, and the kernel in a third (its
 * 11 is READ_WITH_INV, verbs' 11 is DRIVER1): numbers never pass through.
 * siw's own table has no bound check, so what isn't offered isn't shown to it. */
static const uint8_t verbs_op[RD_NUM_OPS] = {
	[RD_OP_SEND] = IBV_WR_SEND,
	[RD_OP_SEND_WITH_INV] = IBV_WR_SEND_WITH_INV,
	[RD_OP_SEND_WITH_IMM] = IBV_WR_SEND_WITH_IMM,
	[RD_OP_WRITE] = IBV_WR_RDMA_WRITE,
	[RD_OP_WRITE_WITH_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[RD_OP_READ] = IBV_WR_RDMA_READ,
	[RD_OP_LOCAL_INV] = IBV_WR_LOCAL_INV,
	[RD_OP_BIND_WINDOW] = IBV_WR_BIND_MW,
	[RD_OP_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[RD_OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

#define FLAG(f, bit, verbs) ((f) & (bit) ? (verbs) : 0)
#define PLAIN_FLAGS(f) (FLAG(f, RD_SIGNALED, IBV_SEND_SIGNALED) | FLAG(f, RD_SOLICITED, IBV_SEND_SOLICITED))
#define FLAGS(f) (PLAIN_FLAGS(f) | FLAG(f, RD_FENCE, IBV_SEND_FENCE) | FLAG(f, RD_INLINE, IBV_SEND_INLINE))

/* Any request that rd_refuse lets pass. Not inlined: the loop over plain ones needs the registers. */
__attribute__((noinline))
static void convert(const struct rd_qp *qp, const struct rd_wr *in, const struct ibv_sge *sges, struct ibv_send_wr *out)
{
	const struct rd_window *w;

	out->wr_id = in->cookie;
	out->opcode = verbs_op[in->op];
	out->send_flags = FLAGS(in->flags);
	if (qp->signal_ops >> in->op & 1)
		out->send_flags |= IBV_SEND_SIGNALED;
	out->sg_list = NULL;
	out->num_sge = 0;
	out->imm_data = 0;

	switch (in->op) {
	case RD_OP_LOCAL_INV:
		w = rd_find_window(qp->windows, in->reg);
		out->invalidate_rkey = rd_window_key(w, in->key_byte);
		return;
	case RD_OP_BIND_WINDOW:
		w = rd_find_window(qp->windows, in->reg);
		out->bind_mw.mw = w->mw;
		out->bind_mw.rkey = rd_window_key(w, in->key_byte);
		out->bind_mw.bind_info.mr = w->mr;
		out->bind_mw.bind_info.addr = w->addr;
		out->bind_mw.bind_info.length = w->length;
		out->bind_mw.bind_info.mw_access_flags = w->access;
		return;
	}
	out->sg_list = (struct ibv_sge *)sges + in->first_sge;
	out->num_sge = in->num_sge;

	switch (in->op) {
	case RD_OP_WRITE_WITH_IMM:
		out->imm_data = htonl(in->imm);
		/* fall through */
	case RD_OP_WRITE:
	case RD_OP_READ:
		out->wr.rdma.remote_addr = in->remote_addr;
		out->wr.rdma.rkey = in->rkey;
		break;
	case RD_OP_SEND_WITH_IMM:
		out->imm_data = htonl(in->imm);
		break;
	case RD_OP_SEND_WITH_INV:
		out->invalidate_rkey = in->rkey;
		/* siw's provider takes the key from here (rdma-core 44, siw.c
		 * push_send_wqe); nobody else looks. */
		out->wr.rdma.remote_addr = 0;
		out->wr.rdma.rkey = in->rkey;
		break;
	case RD_OP_COMPARE_SWAP:
	case RD_OP_FETCH_ADD:
		out->wr.atomic.remote_addr = in->remote_addr;
		out->wr.atomic.compare_add = in->compare_add;
		out->wr.atomic.swap = in->swap;
		out->wr.atomic.rkey = in->rkey;
		break;
	}
}

/*
 * Nearly all requests are WRITEs, READs and SENDs that want nothing but, at times, a completion.
 * They get one look, which asks all that rd_refuse would ask of them, and are written straight
 * down. Which operations these can be is found out once.
 */
static uint32_t plain_ops(const struct rd_qp *qp)
{
	uint32_t ops = 1u << RD_OP_SEND | 1u << RD_OP_WRITE | 1u << RD_OP_READ;

	if (qp->no_empty_sges)
		return 0;
	if (__atomic_load_n(&qp->read_depth, __ATOMIC_RELAXED) == 0)
		ops &= ~(1u << RD_OP_READ);
	return ops & qp->ops & ~qp->signal_ops;
}

static inline int is_plain(const struct rd_qp *qp, uint32_t ops, const struct rd_wr *wr, uint32_t num_sges)
{
	return wr->op < RD_NUM_OPS && (ops >> wr->op & 1) && !(wr->flags & (RD_FENCE | RD_INLINE)) &&
	       wr->num_sge <= qp->read_sges && (uint64_t)wr->first_sge + wr->num_sge <= num_sges;
}

static inline void convert_plain(const struct rd_wr *in, const struct ibv_sge *sges, struct ibv_send_wr *out)
{
	out->wr_id = in->cookie;
	out->sg_list = (struct ibv_sge *)sges + in->first_sge;
	out->num_sge = in->num_sge;
	out->opcode = in->op == RD_OP_WRITE ? IBV_WR_RDMA_WRITE :
		      in->op == RD_OP_READ ? IBV_WR_RDMA_READ : IBV_WR_SEND;
	out->send_flags = PLAIN_FLAGS(in->flags);
	out->imm_data = 0;
	out->wr.rdma.remote_addr = in->remote_addr; /* nobody looks at a SEND's */
	out->wr.rdma.rkey = in->rkey;
}

/* Posts at most a chunk, and tells whether all of it was accepted; posted says what was. Its
 * frame is too large for gcc to inline it without being told. */
__attribute__((always_inline))
static inline int post_chunk(struct rd_qp *qp, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges,
			     uint32_t num_sges)
{
	const uint32_t plain = plain_ops(qp);
	struct ibv_send_wr chunk[CHUNK], *bad = NULL;
	uint32_t k, i, binds = 0;
	int err = 0, rc;

	for (k = 0; k < n; k++) {
		if (is_plain(qp, plain, &wrs[k], num_sges)) {
			convert_plain(&wrs[k], sges, &chunk[k]);
		} else {
			err = rd_refuse(qp, &wrs[k], sges, num_sges);
			if (err)
				break;
			convert(qp, &wrs[k], sges, &chunk[k]);
			binds += wrs[k].op == RD_OP_BIND_WINDOW;
		}
		chunk[k].next = &chunk[k + 1];
	}
	if (k > 0) {
		chunk[k - 1].next = NULL;
		rc = ibv_post_send(qp->qp, chunk, &bad);
		/*
		 * siw may return 0 for a chain that it stopped in the middle of: the
		 * doorbell's result hides the error, bad_wr doesn't. An error without
		 * bad_wr is the doorbell's own: the requests are in the ring, and the
		 * next doorbell runs them.
		 */
		if (rc || bad)
			err = rc ? rd_post_errno(rc) : EINVAL;
		if (bad)
			k = (uint32_t)(bad - chunk);
		/* Posting a type-2 bind doesn't update the library's copy of the key,
		 * and rxe refuses the next bind without it. */
		for (i = 0; binds && i < k; i++)
			if (chunk[i].opcode == IBV_WR_BIND_MW)
				chunk[i].bind_mw.mw->rkey = chunk[i].bind_mw.rkey;
	}
	qp->posted.accepted += k;
	if (err) {
		qp->posted.err = err;
		qp->posted.at = qp->posted.accepted;
	}
	return !err;
}

void rd_post_chain(struct rd_qp *qp, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges)
{
	uint32_t k;

	do {
		k = n < CHUNK ? n : CHUNK;
		if (!post_chunk(qp, wrs, k, sges, num_sges))
			return;
		wrs += k;
		n -= k;
	} while (n > 0);
}

void rd_post_send(uintptr_t handle, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges)
{
	struct rd_qp *qp = (struct rd_qp *)handle;

	qp->calls++;
	qp->posted = (struct rd_posted){ 0, 0, 0 };
	if (qp->ex)
		rd_post_batch(qp, wrs, n, sges, num_sges);
	else
		rd_post_chain(qp, wrs, n, sges, num_sges);
}
