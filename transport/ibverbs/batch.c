//go:build ibverbs && linux && cgo

/* Posting by the ibv_wr_* calls: between start and complete everything is built in
 * place, and nothing is posted unless all of it could be. */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "shim.h"

static unsigned int verbs_flags(const struct rd_qp *qp, const struct rd_wr *wr)
{
	unsigned int f = 0;

	if ((wr->flags & RD_SIGNALED) || (qp->signal_ops >> wr->op & 1))
		f |= IBV_SEND_SIGNALED;
	if (wr->flags & RD_FENCE)
		f |= IBV_SEND_FENCE;
	if (wr->flags & RD_SOLICITED)
		f |= IBV_SEND_SOLICITED;
	if (wr->flags & RD_INLINE) /* the data says so, but rxe wants to hear it */
		f |= IBV_SEND_INLINE;
	return f;
}

static int too_much(const struct rd_qp *qp, const struct rd_wr *wr, const struct ibv_sge *sges)
{
	uint64_t length = 0;
	uint32_t i;

	if (wr->op == RD_OP_LOCAL_INV || wr->op == RD_OP_BIND_WINDOW)
		return 0;
	if (wr->num_sge > qp->send_sges)
		return RD_REFUSED_SGES;
	if (wr->flags & RD_INLINE) {
		for (i = 0; i < wr->num_sge; i++)
			length += sges[wr->first_sge + i].length;
		if (length > qp->inline_data)
			return RD_REFUSED_INLINE;
	}
	return 0;
}

/* rxe's provider sends nothing of a list of inline data (rdma-core 44,
 * wr_set_inline_data_list never adds up its length), so it is gathered here. */
static void set_inline(struct ibv_qp_ex *ex, const struct rd_wr *wr, const struct ibv_sge *sges)
{
	uint8_t data[RD_MAX_INLINE];
	size_t length = 0;
	uint32_t i;

	if (wr->num_sge == 1) {
		ibv_wr_set_inline_data(ex, (void *)(uintptr_t)sges->addr, sges->length);
		return;
	}
	for (i = 0; i < wr->num_sge; i++) {
		memcpy(data + length, (void *)(uintptr_t)sges[i].addr, sges[i].length);
		length += sges[i].length;
	}
	ibv_wr_set_inline_data(ex, data, length);
}

static void build(const struct rd_qp *qp, const struct rd_wr *wr, const struct ibv_sge *sges)
{
	struct ibv_qp_ex *ex = qp->ex;
	const struct rd_window *w;

	ex->wr_id = wr->cookie;
	ex->wr_flags = verbs_flags(qp, wr);
	switch (wr->op) {
	case RD_OP_SEND:
		ibv_wr_send(ex);
		break;
	case RD_OP_SEND_WITH_INV:
		ibv_wr_send_inv(ex, wr->rkey);
		break;
	case RD_OP_SEND_WITH_IMM:
		ibv_wr_send_imm(ex, htonl(wr->imm));
		break;
	case RD_OP_WRITE:
		ibv_wr_rdma_write(ex, wr->rkey, wr->remote_addr);
		break;
	case RD_OP_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, wr->rkey, wr->remote_addr, htonl(wr->imm));
		break;
	case RD_OP_READ:
		ibv_wr_rdma_read(ex, wr->rkey, wr->remote_addr);
		break;
	case RD_OP_COMPARE_SWAP:
		ibv_wr_atomic_cmp_swp(ex, wr->rkey, wr->remote_addr, wr->compare_add, wr->swap);
		break;
	case RD_OP_FETCH_ADD:
		ibv_wr_atomic_fetch_add(ex, wr->rkey, wr->remote_addr, wr->compare_add);
		break;
	case RD_OP_LOCAL_INV:
		w = rd_find_window(qp->windows, wr->reg);
		ibv_wr_local_inv(ex, rd_window_key(w, wr->key_byte));
		return;
	case RD_OP_BIND_WINDOW: {
		struct ibv_mw_bind_info info;

		w = rd_find_window(qp->windows, wr->reg);
		info.mr = w->mr;
		info.addr = w->addr;
		info.length = w->length;
		info.mw_access_flags = w->access;
		ibv_wr_bind_mw(ex, w->mw, rd_window_key(w, wr->key_byte), &info);
		return;
	}
	}
	/* Also for no SGEs: providers finish the request here. */
	sges += wr->first_sge;
	if (wr->flags & RD_INLINE)
		set_inline(ex, wr, sges);
	else
		ibv_wr_set_sge_list(ex, wr->num_sge, sges);
}

/*
 * What a provider says when it has posted nothing. Anything else is the word of a
 * doorbell that is a system call (rxe's): the requests are in the ring, and the next
 * doorbell runs them.
 */
static int nothing_posted(int err)
{
	return err == ENOMEM || err == ENOSPC || err == EINVAL || err == EOPNOTSUPP;
}

void rd_post_batch(struct rd_qp *qp, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges)
{
	struct rd_posted *r = &qp->posted;
	uint32_t i;

	ibv_wr_start(qp->ex);
	for (i = 0; i < n && !r->err; i++) {
		r->err = rd_refuse(qp, &wrs[i], sges, num_sges);
		if (!r->err)
			r->err = too_much(qp, &wrs[i], sges);
		if (r->err)
			r->at = i;
		else
			build(qp, &wrs[i], sges);
	}
	if (r->err) {
		ibv_wr_abort(qp->ex);
		return;
	}
	r->err = rd_post_errno(ibv_wr_complete(qp->ex));
	if (r->err && nothing_posted(r->err))
		return;
	r->accepted = r->at = n;
	/* As in chain.c: the library's copy of the key. Within a chain a window is bound
	 * once, so that doing it here is in time. */
	for (i = 0; i < n; i++) {
		if (wrs[i].op == RD_OP_BIND_WINDOW) {
			struct rd_window *w = rd_find_window(qp->windows, wrs[i].reg);

			w->mw->rkey = rd_window_key(w, wrs[i].key_byte);
		}
	}
}
