//go:build ibverbs && linux && cgo

/* The data path: what both ways of posting requests share, receives, and polling. */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "shim.h"

int rd_errno(int rc)
{
	if (rc == 0)
		return 0;
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

int rd_post_errno(int rc)
{
	return rc == -1 ? EIO : rc < 0 ? -rc : rc;
}

struct rd_window *rd_find_window(const struct rd_windows *t, uint32_t id)
{
	uint32_t slot = id & ((1u << RD_SLOT_BITS) - 1);
	struct rd_window *block = t->block[slot >> RD_BLOCK_BITS];
	struct rd_window *w;

	if (!id || !block)
		return NULL;
	w = &block[slot & (RD_BLOCK - 1)];
	return w->id == id ? w : NULL;
}

/* The index bits of a window's key are the device's, the low byte is ours. */
uint32_t rd_window_key(const struct rd_window *w, uint8_t key_byte)
{
	return (w->mw->rkey & ~0xffu) | key_byte;
}

int rd_refuse(const struct rd_qp *qp, const struct rd_wr *wr, const struct ibv_sge *sges, uint32_t num_sges)
{
	const struct rd_window *w;

	if (wr->op >= RD_NUM_OPS || !(qp->ops >> wr->op & 1))
		return RD_REFUSED_OP;
	if ((wr->flags & RD_INLINE) && !(qp->inline_ops >> wr->op & 1))
		return RD_REFUSED_INLINE_OP;
	if ((wr->flags & RD_FENCE) && !(qp->fence_ops >> wr->op & 1))
		return RD_REFUSED_FENCE_OP;

	switch (wr->op) {
	case RD_OP_LOCAL_INV:
	case RD_OP_BIND_WINDOW:
		w = rd_find_window(qp->windows, wr->reg);
		if (!w || (wr->op == RD_OP_BIND_WINDOW && !w->mr))
			return RD_REFUSED_WINDOW;
		return 0;
	case RD_OP_READ:
		/* siw truncates silently. */
		if (wr->num_sge > qp->read_sges)
			return RD_REFUSED_READ_SGE;
		/* fall through */
	case RD_OP_COMPARE_SWAP:
	case RD_OP_FETCH_ADD:
		if (__atomic_load_n(&qp->read_depth, __ATOMIC_RELAXED) == 0)
			return RD_REFUSED_READ_DEPTH;
	}
	if (wr->first_sge > num_sges || wr->num_sge > num_sges - wr->first_sge)
		return RD_REFUSED_SGE_RANGE;
	if (qp->no_empty_sges && wr->num_sge > 1 && !(wr->flags & RD_INLINE))
		for (uint32_t i = 0; i + 1 < wr->num_sge; i++)
			if (sges[wr->first_sge + i].length == 0)
				return RD_REFUSED_EMPTY_SGE;
	return 0;
}

#define CHUNK 64

void rd_post_recv(uintptr_t queue, const struct rd_recv_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges)
{
	struct rd_recvq *q = (struct rd_recvq *)queue;
	struct ibv_recv_wr chunk[CHUNK];
	struct rd_posted r = { 0, 0, 0 };

	q->calls++;
	while (r.accepted < n && !r.err) {
		uint32_t want = n - r.accepted < CHUNK ? n - r.accepted : CHUNK;
		uint32_t k;
		int rc;
		struct ibv_recv_wr *bad = NULL;

		for (k = 0; k < want; k++) {
			const struct rd_recv_wr *in = &wrs[r.accepted + k];

			if (in->first_sge > num_sges || in->num_sge > num_sges - in->first_sge) {
				r.err = RD_REFUSED_SGE_RANGE;
				break;
			}
			chunk[k].wr_id = in->cookie;
			chunk[k].sg_list = (struct ibv_sge *)sges + in->first_sge;
			chunk[k].num_sge = in->num_sge;
			chunk[k].next = &chunk[k + 1];
		}
		if (k > 0) {
			chunk[k - 1].next = NULL;
			rc = rd_post_errno(q->qp ? ibv_post_recv(q->qp, chunk, &bad) : ibv_post_srq_recv(q->srq, chunk, &bad));
			r.accepted += bad ? (uint32_t)(bad - chunk) : k;
			r.at = r.accepted;
			if (rc || bad)
				r.err = rc ? rc : EINVAL;
		}
	}
	q->posted = r;
}

/* transport.Status; general where it has no word of its own. */
#define GENERAL 14
static const uint8_t status_of[] = {
	[IBV_WC_SUCCESS] = 0,
	[IBV_WC_LOC_LEN_ERR] = 1,
	[IBV_WC_LOC_QP_OP_ERR] = 2,
	[IBV_WC_LOC_EEC_OP_ERR] = GENERAL,
	[IBV_WC_LOC_PROT_ERR] = 3,
	[IBV_WC_WR_FLUSH_ERR] = 4,
	[IBV_WC_MW_BIND_ERR] = 5,
	[IBV_WC_BAD_RESP_ERR] = 6,
	[IBV_WC_LOC_ACCESS_ERR] = 7,
	[IBV_WC_REM_INV_REQ_ERR] = 8,
	[IBV_WC_REM_ACCESS_ERR] = 9,
	[IBV_WC_REM_OP_ERR] = 10,
	[IBV_WC_RETRY_EXC_ERR] = 11,
	[IBV_WC_RNR_RETRY_EXC_ERR] = 12,
	[IBV_WC_LOC_RDD_VIOL_ERR] = GENERAL,
	[IBV_WC_REM_INV_RD_REQ_ERR] = GENERAL,
	[IBV_WC_REM_ABORT_ERR] = GENERAL,
	[IBV_WC_INV_EECN_ERR] = GENERAL,
	[IBV_WC_INV_EEC_STATE_ERR] = GENERAL,
	[IBV_WC_FATAL_ERR] = 13,
	[IBV_WC_RESP_TIMEOUT_ERR] = 11,
	[IBV_WC_GENERAL_ERR] = GENERAL,
};

static uint8_t status(uint32_t wc_status)
{
	return wc_status < sizeof(status_of) ? status_of[wc_status] : GENERAL;
}

static void complete(const struct ibv_wc *wc, uint32_t inv_flags, struct rd_completion *out)
{
	memset(out, 0, sizeof(*out));
	out->cookie = wc->wr_id;
	out->qpn = wc->qp_num;
	out->status = status(wc->status);
	out->vendor = wc->vendor_err;
	/* Of a failed request only these fields mean anything, not the opcode. */
	if (wc->status != IBV_WC_SUCCESS || !(wc->opcode & IBV_WC_RECV))
		return;
	out->flags = RD_RECEIVE;
	out->byte_len = wc->byte_len;
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		out->flags |= RD_WITH_IMM;
		out->imm = ntohl(wc->imm_data);
	} else if (wc->wc_flags & inv_flags) {
		out->flags |= RD_WITH_INV;
		out->inv_key = wc->invalidated_rkey;
	}
}

static int poll_all(struct ibv_cq *cq, uint32_t inv_flags, struct rd_completion *out, uint32_t n)
{
	struct ibv_wc wc[32];
	uint32_t done = 0;

	while (done < n) {
		uint32_t want = n - done < 32 ? n - done : 32;
		int got = ibv_poll_cq(cq, (int)want, wc);

		if (got < 0)
			return done ? (int)done : got; /* the next call reports it */
		for (int i = 0; i < got; i++)
			complete(&wc[i], inv_flags, &out[done + i]);
		done += (uint32_t)got;
		if ((uint32_t)got < want)
			break;
	}
	return (int)done;
}

void rd_poll(uintptr_t handle, struct rd_completion *out, uint32_t n)
{
	struct rd_cq *cq = (struct rd_cq *)handle;

	cq->calls++;
	cq->polled = poll_all(cq->cq, cq->inv_flags, out, n);
}
