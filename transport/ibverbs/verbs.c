//go:build ibverbs && linux && cgo

/* Making, asking and unmaking verbs objects. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include "shim.h"

/* For calls that return a pointer or set errno. */
static int failed(void)
{
	return errno ? errno : EIO;
}

int rd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return failed();
	return 0;
}

/* On-demand paging for SEND, receive, WRITE and READ. */
static int offers_odp(struct ibv_context *ctx)
{
	const uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
	struct ibv_device_attr_ex a;

	memset(&a, 0, sizeof(a));
	if (ibv_query_device_ex(ctx, NULL, &a))
		return 0;
	return (a.odp_caps.general_caps & IBV_ODP_SUPPORT) && (a.odp_caps.per_transport_caps.rc_odp_caps & rc) == rc;
}

int rd_query_caps(struct ibv_context *ctx, struct rd_caps *out)
{
	struct ibv_device_attr a;
	struct ibv_port_attr p;
	int rc;

	memset(out, 0, sizeof(*out));
	rc = rd_errno(ibv_query_device(ctx, &a));
	if (rc)
		return rc;
	rc = rd_errno(ibv_query_port(ctx, 1, &p));
	if (rc)
		return rc;
	out->max_sge = a.max_sge;
	out->max_sge_rd = a.max_sge_rd;
	out->max_qp_wr = a.max_qp_wr;
	out->max_cqe = a.max_cqe;
	out->max_srq_wr = a.max_srq ? a.max_srq_wr : 0;
	out->max_mr = a.max_mr;
	out->max_mw = a.max_mw;
	out->max_mr_size = a.max_mr_size;
	out->max_rd_atom = a.max_qp_rd_atom;
	out->max_init_rd_atom = a.max_qp_init_rd_atom;
	if (a.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B)
		out->windows = 2;
	else if (a.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A)
		out->windows = 1;
	out->mem_mgt_extensions = !!(a.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
	out->atomics = a.atomic_cap != IBV_ATOMIC_NONE;
	out->iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	out->on_demand = offers_odp(ctx);
	out->ethernet = p.link_layer == IBV_LINK_LAYER_ETHERNET;
	out->max_msg = p.max_msg_sz;
	memcpy(out->firmware, a.fw_ver, sizeof(out->firmware));
	out->firmware[sizeof(out->firmware) - 1] = 0;
	return 0;
}

/* What batch posting of an operation has to be asked for by. */
static const uint32_t ex_op[RD_NUM_OPS] = {
	[RD_OP_SEND] = IBV_QP_EX_WITH_SEND,
	[RD_OP_SEND_WITH_INV] = IBV_QP_EX_WITH_SEND_WITH_INV,
	[RD_OP_SEND_WITH_IMM] = IBV_QP_EX_WITH_SEND_WITH_IMM,
	[RD_OP_WRITE] = IBV_QP_EX_WITH_RDMA_WRITE,
	[RD_OP_WRITE_WITH_IMM] = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	[RD_OP_READ] = IBV_QP_EX_WITH_RDMA_READ,
	[RD_OP_LOCAL_INV] = IBV_QP_EX_WITH_LOCAL_INV,
	[RD_OP_BIND_WINDOW] = IBV_QP_EX_WITH_BIND_MW,
	[RD_OP_COMPARE_SWAP] = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	[RD_OP_FETCH_ADD] = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
};

static uint64_t ex_ops(uint32_t ops)
{
	uint64_t flags = 0;
	int op;

	for (op = 0; op < RD_NUM_OPS; op++)
		if (ops >> op & 1)
			flags |= ex_op[op];
	return flags;
}

static int takes_inline(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t size)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = size },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	if (!qp)
		return 0;
	ibv_destroy_qp(qp);
	return attr.cap.max_inline_data >= size;
}

/* No attribute tells how much can be sent inline, so queue pairs that are never
 * used find out. */
uint32_t rd_probe_inline(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
	uint32_t low = 0, high = RD_MAX_INLINE; /* low works, high + 1 is not asked */

	if (pd && cq) {
		while (low < high) {
			uint32_t mid = (low + high + 1) / 2;

			if (takes_inline(pd, cq, mid))
				low = mid;
			else
				high = mid - 1;
		}
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return low;
}

int rd_probe_batch(struct ibv_context *ctx, uint32_t ops)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
	struct ibv_qp *qp = NULL;

	if (pd && cq) {
		struct ibv_qp_init_attr_ex attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = pd,
			.send_ops_flags = ex_ops(ops),
		};
		qp = ibv_create_qp_ex(ctx, &attr);
	}
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return qp != NULL;
}

/* siw's kernel maps queues into a process by keys: offsets of pages, the first that are
 * free in the context. For libsiw one of them, SIW_INVAL_UOBJ_KEY, means that there
 * is none: whichever queue begins at that page can't be made, and fails without an errno.
 * So a small queue is laid over it, for as long as the context lives. Those before it,
 * in a context where nothing is mapped yet, are only there to fill the space: a CQ takes 32
 * bytes for each entry and 8 more. */
struct ibv_cq *rd_cover_key(struct ibv_context *ctx)
{
	static const int entries[] = { 16384, 1024, 512, 128 }; /* pages 0..128, ..137, ..142, 143 and 144 = 0x90 */
	enum { n = sizeof(entries) / sizeof(entries[0]) };
	struct ibv_cq *cqs[n];

	for (int i = 0; i < n; i++)
		cqs[i] = ibv_create_cq(ctx, entries[i], NULL, NULL, 0);
	for (int i = 0; i < n - 1; i++)
		if (cqs[i])
			ibv_destroy_cq(cqs[i]);
	return cqs[n - 1];
}

int rd_create_cq(struct ibv_context *ctx, int entries, uint64_t owner, struct ibv_comp_channel **channel,
		 struct ibv_cq **cq)
{
	int rc;

	errno = 0;
	*channel = ibv_create_comp_channel(ctx);
	if (!*channel)
		return failed();
	rc = rd_nonblock((*channel)->fd);
	if (!rc) {
		errno = 0;
		*cq = ibv_create_cq(ctx, entries, (void *)(uintptr_t)owner, *channel, 0);
		if (*cq)
			return 0;
		rc = failed();
	}
	ibv_destroy_comp_channel(*channel);
	return rc;
}

int rd_cq_events(struct ibv_comp_channel *channel, int max)
{
	struct ibv_cq *cq;
	void *owner;
	int n = 0;

	while (n < max) {
		errno = 0;
		if (ibv_get_cq_event(channel, &cq, &owner) == 0)
			n++;
		else if (errno != EINTR)
			break;
	}
	return n;
}

int rd_arm(uintptr_t cq, struct ibv_comp_channel *channel, int due)
{
	struct rd_cq *c = (struct rd_cq *)cq;

	c->events = rd_cq_events(channel, due);
	return rd_errno(ibv_req_notify_cq(c->cq, 0));
}

int rd_doze(struct ibv_comp_channel *channel, int alarm, int max, int ms)
{
	struct pollfd fds[2] = {{.fd = channel->fd, .events = POLLIN}, {.fd = alarm, .events = POLLIN}};

	poll(fds, 2, ms);
	return rd_cq_events(channel, max);
}

int rd_alloc_pd(struct ibv_context *ctx, struct ibv_pd **pd)
{
	errno = 0;
	*pd = ibv_alloc_pd(ctx);
	return *pd ? 0 : failed();
}

int rd_reg_mr(struct ibv_pd *pd, uint64_t addr, uint64_t length, int access, struct ibv_mr **mr)
{
	do {
		errno = 0;
		*mr = ibv_reg_mr(pd, (void *)(uintptr_t)addr, length, access);
	} while (!*mr && errno == EINTR); /* pinning pages can be interrupted */
	return *mr ? 0 : failed();
}

int rd_alloc_window(struct ibv_pd *pd, struct ibv_mw **mw)
{
	errno = 0;
	*mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	return *mw ? 0 : failed();
}

int rd_create_srq(struct ibv_pd *pd, uint32_t *max_wr, uint32_t *max_sge, struct ibv_srq **srq)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = *max_wr, .max_sge = *max_sge } };

	errno = 0;
	*srq = ibv_create_srq(pd, &attr);
	if (!*srq)
		return failed();
	*max_wr = attr.attr.max_wr;
	*max_sge = attr.attr.max_sge;
	return 0;
}

int rd_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *scq, struct ibv_cq *rcq,
		 struct ibv_srq *srq, uint64_t owner, uint32_t ops, struct rd_qp_caps *caps, struct ibv_qp_ex **ex)
{
	struct ibv_qp_init_attr_ex attr;
	int rc;

	for (;;) {
		memset(&attr, 0, sizeof(attr));
		attr.qp_context = (void *)(uintptr_t)owner;
		attr.send_cq = scq;
		attr.recv_cq = rcq;
		attr.srq = srq;
		attr.qp_type = IBV_QPT_RC;
		attr.sq_sig_all = 0; /* signaling is per request: a provider has been seen to ignore this */
		attr.cap.max_send_wr = caps->send_wr;
		attr.cap.max_recv_wr = caps->recv_wr;
		attr.cap.max_send_sge = caps->send_sge;
		attr.cap.max_recv_sge = caps->recv_sge;
		attr.cap.max_inline_data = caps->inline_data;
		attr.comp_mask = IBV_QP_INIT_ATTR_PD;
		attr.pd = pd;
		if (ops) {
			attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
			attr.send_ops_flags = ex_ops(ops);
		}
		errno = 0;
		if (!rdma_create_qp_ex(id, &attr))
			break;
		rc = failed();
		if (!ops || (rc != EOPNOTSUPP && rc != ENOSYS && rc != EINVAL))
			return rc;
		ops = 0; /* not offered, or not for all of them */
	}
	*ex = ops ? ibv_qp_to_qp_ex(id->qp) : NULL;
	caps->send_wr = attr.cap.max_send_wr;
	caps->recv_wr = attr.cap.max_recv_wr;
	caps->send_sge = attr.cap.max_send_sge;
	caps->recv_sge = attr.cap.max_recv_sge;
	caps->inline_data = attr.cap.max_inline_data;
	return 0;
}

int rd_qp_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	errno = 0;
	return rd_errno(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

int rd_set_rnr_timer(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = RD_RNR_TIMER };

	errno = 0;
	return rd_errno(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER));
}

int rd_query_qp(struct ibv_qp *qp, struct rd_qp_attr *out)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int rc;

	memset(&attr, 0, sizeof(attr));
	errno = 0;
	rc = rd_errno(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER, &init));
	out->state = attr.qp_state;
	out->rd_atomic = attr.max_rd_atomic;
	out->dest_rd_atomic = attr.max_dest_rd_atomic;
	out->min_rnr_timer = attr.min_rnr_timer;
	return rc;
}

int rd_next_async(struct ibv_context *ctx, struct rd_async *out)
{
	struct ibv_async_event ev;

	for (;;) {
		errno = 0;
		if (ibv_get_async_event(ctx, &ev) == 0)
			break;
		if (errno != EINTR)
			return failed();
	}
	memset(out, 0, sizeof(*out));
	out->type = ev.event_type;
	switch (ev.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->owner = (uintptr_t)ev.element.cq->cq_context;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->qpn = ev.element.qp->qp_num;
		out->owner = (uintptr_t)ev.element.qp->qp_context;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out->port = ev.element.port_num;
		break;
	default:
		break;
	}
	/* Destroying an object waits until its events are acknowledged, so its
	 * memory was good up to here. */
	ibv_ack_async_event(&ev);
	return 0;
}
