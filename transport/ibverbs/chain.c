//go:build ibverbs && linux && cgo

/* Posting by ibv_post_send, which every provider has. */

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "shim.h"

/*
 * Requests are converted on the stack, in chunks: no queue pair has to own a
 * request array, and no stale pointer to Go memory stays behind. The other way,
 * filling requests and SGEs in C's memory from Go, with the same checks, saves 1.4 ns
 * for each request of a chain of 16 (247 ns against 270, of which the crossing is 45;
 * a C program takes 275: "bench postcost"), and costs each queue pair an array of
 * 144 bytes for each request, and union members written through unsafe pointers.
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
#define FLAGS(f) (FLAG(f, RD_SIGNALED, IBV_SEND_SIGNALED) | FLAG(f, RD_FENCE, IBV_SEND_FENCE) | \
		  FLAG(f, RD_SOLICITED, IBV_SEND_SOLICITED) | FLAG(f, RD_INLINE, IBV_SEND_INLINE))
static const uint8_t verbs_flags[16] = {
	FLAGS(0), FLAGS(1), FLAGS(2), FLAGS(3), FLAGS(4), FLAGS(5), FLAGS(6), FLAGS(7),
	FLAGS(8), FLAGS(9), FLAGS(10), FLAGS(11), FLAGS(12), FLAGS(13), FLAGS(14), FLAGS(15),
};

static void convert(const struct rd_qp *qp, const struct rd_wr *in, const struct ibv_sge *sges,
		    struct ibv_send_wr *out)
{
	const struct rd_window *w;

	out->wr_id = in->cookie;
	out->opcode = verbs_op[in->op];
	out->send_flags = verbs_flags[in->flags & (RD_SIGNALED | RD_FENCE | RD_SOLICITED | RD_INLINE)];
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

struct rd_posted rd_post_chain(struct rd_qp *qp, const struct rd_wr *wrs, uint32_t n,
			       const struct ibv_sge *sges, uint32_t num_sges)
{
	struct ibv_send_wr chunk[CHUNK];
	struct rd_posted r = { 0, 0, 0 };

	while (r.accepted < n && !r.err) {
		uint32_t want = n - r.accepted < CHUNK ? n - r.accepted : CHUNK;
		uint32_t k, took, i;
		int refused = 0, rc;
		struct ibv_send_wr *bad = NULL;

		for (k = 0; k < want; k++) {
			refused = rd_refuse(qp, &wrs[r.accepted + k], sges, num_sges);
			if (refused)
				break;
			convert(qp, &wrs[r.accepted + k], sges, &chunk[k]);
			chunk[k].next = &chunk[k + 1];
		}
		if (k > 0) {
			chunk[k - 1].next = NULL;
			errno = 0;
			rc = rd_errno(ibv_post_send(qp->qp, chunk, &bad));
			/*
			 * siw may return 0 for a chain that it stopped in the middle
			 * of: the doorbell's result hides the error, bad_wr doesn't.
			 * An error without bad_wr is the doorbell's own: the requests
			 * are in the ring, and the next doorbell runs them.
			 */
			took = bad ? (uint32_t)(bad - chunk) : k;
			if (bad && !rc)
				rc = EINVAL;
			/* Posting a type-2 bind doesn't update the library's copy of
			 * the key, and rxe refuses the next bind without it. */
			for (i = 0; i < took; i++)
				if (chunk[i].opcode == IBV_WR_BIND_MW)
					chunk[i].bind_mw.mw->rkey = chunk[i].bind_mw.rkey;
			r.accepted += took;
			r.at = r.accepted;
			if (rc) {
				r.err = rc;
				return r;
			}
		}
		r.err = refused;
	}
	return r;
}
