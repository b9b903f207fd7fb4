/*
 * The C side of package ibverbs.
 *
 * Go hands over arrays of plain records (package transport's WR, SGE, RecvWR,
 * Completion); their mirrors here are checked against Go when the package is
 * compiled (layout.go). Nothing here keeps a pointer to Go memory after it
 * returns, and nothing blocks.
 *
 * Functions that fail return a positive errno: providers return errno, -errno
 * (siw), or -1 with errno set, so the sign is made right here, once.
 */
#ifndef RDMARW_SHIM_H
#define RDMARW_SHIM_H

#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* transport.WR */
struct rd_wr {
	uint64_t cookie;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	uint32_t rkey;
	uint32_t imm;
	uint32_t first_sge;
	uint32_t reg;
	uint16_t num_sge;
	uint8_t op;
	uint8_t flags;
	uint8_t key_byte;
};

/* transport.RecvWR */
struct rd_recv_wr {
	uint64_t cookie;
	uint32_t first_sge;
	uint16_t num_sge;
};

/* transport.Completion */
struct rd_completion {
	uint64_t cookie;
	uint32_t qpn;
	uint32_t vendor;
	uint32_t imm;
	uint32_t inv_key;
	uint32_t byte_len;
	uint8_t status;
	uint8_t flags;
};

/* transport.Opcode */
enum {
	RD_OP_SEND = 1,
	RD_OP_SEND_WITH_INV,
	RD_OP_SEND_WITH_IMM,
	RD_OP_WRITE,
	RD_OP_WRITE_WITH_IMM,
	RD_OP_READ,
	RD_OP_READ_WITH_INV,
	RD_OP_LOCAL_INV,
	RD_OP_FAST_REG,
	RD_OP_BIND_WINDOW,
	RD_OP_COMPARE_SWAP,
	RD_OP_FETCH_ADD,
	RD_NUM_OPS
};

/* transport.Flags */
enum {
	RD_SIGNALED = 1 << 0,
	RD_FENCE = 1 << 1,
	RD_SOLICITED = 1 << 2,
	RD_INLINE = 1 << 3
};

/* transport.CompletionFlags */
enum {
	RD_WITH_IMM = 1 << 0,
	RD_WITH_INV = 1 << 1,
	RD_RECEIVE = 1 << 2
};

/* Why a request was not even shown to the provider; above all errnos. The
 * same numbers are in diagnose.go. */
enum {
	RD_REFUSED_OP = 0x10000, /* the device doesn't do this operation */
	RD_REFUSED_INLINE_OP,    /* nor this one inline */
	RD_REFUSED_FENCE_OP,     /* nor this one with a fence */
	RD_REFUSED_READ_SGE,     /* more SGEs than a READ may have */
	RD_REFUSED_READ_DEPTH,   /* a READ on a queue pair without READ depth */
	RD_REFUSED_SGE_RANGE,    /* SGEs outside the arena */
	RD_REFUSED_WINDOW,       /* unknown window, or one that is not mapped */
	RD_REFUSED_SGES,         /* more SGEs than the queue pair takes */
	RD_REFUSED_INLINE,       /* more inline data than it takes */
	RD_REFUSED_EMPTY_SGE     /* an empty SGE in front of others */
};

/* A window and what it was last mapped to. */
struct rd_window {
	struct ibv_mw *mw;
	struct ibv_mr *mr; /* NULL: not mapped */
	uint64_t addr;
	uint64_t length;
	uint32_t access;
	uint32_t id; /* transport.RegistrationID, 0: free slot */
};

/*
 * The windows of a protection domain by slot of their id. Blocks are added and
 * never moved while the domain lives, so posting needs no lock: a request that
 * names a window is made after the window.
 */
#define RD_SLOT_BITS 18
#define RD_BLOCK_BITS 8
#define RD_BLOCK (1u << RD_BLOCK_BITS)
#define RD_BLOCKS (1u << (RD_SLOT_BITS - RD_BLOCK_BITS))
struct rd_windows {
	struct rd_window *block[RD_BLOCKS];
};

/* More inline data isn't used, also where a device offers it. */
#define RD_MAX_INLINE 4096

/* What became of a post. */
struct rd_posted {
	uint32_t accepted; /* requests from the first that will run */
	uint32_t at;       /* the one that err is about, if not 0 */
	int32_t err;       /* errno, RD_REFUSED_*, or 0 */
};

/* What posting receives needs to know of a queue: a queue pair's, or a shared one. */
struct rd_recvq {
	struct ibv_qp *qp;   /* NULL: shared */
	struct ibv_srq *srq;
	uint64_t calls;      /* how often rd_post_recv was called */
	struct rd_posted posted;
};

/* What posting needs to know of a queue pair. */
struct rd_qp {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; /* batch posting; NULL: not offered */
	struct rd_windows *windows;
	uint32_t ops;        /* bit per RD_OP: can be posted */
	uint32_t inline_ops; /* bit per RD_OP: may have RD_INLINE */
	uint32_t fence_ops;  /* bit per RD_OP: may have RD_FENCE */
	uint32_t read_sges;  /* hard limit of a READ */
	uint32_t send_sges;  /* of anything else */
	uint32_t inline_data;
	uint32_t signal_ops; /* bit per RD_OP: is signaled whatever its flags say */
	uint32_t no_empty_sges; /* an empty SGE may only be the last one */
	int32_t read_depth;  /* -1: not known yet; written by another thread */
	uint64_t calls;      /* how often rd_post_send was called */
	struct rd_posted posted;
	struct rd_recvq recv;
};

/* Tells why a request can't be shown to the provider; 0: it can. */
int rd_refuse(const struct rd_qp *qp, const struct rd_wr *wr, const struct ibv_sge *sges, uint32_t num_sges);
struct rd_window *rd_find_window(const struct rd_windows *t, uint32_t id);
uint32_t rd_window_key(const struct rd_window *w, uint8_t key_byte);

/*
 * What runs for each post and poll is made for a cheap crossing. It takes its object as a
 * number: of a pointer to a struct with pointers in it cgo finds out each time whether it
 * leads to Go's memory (cgoCheckPointer). It leaves its result in the object: for one that is
 * returned cgo looks up, twice, where the caller's stack is (_cgo_topofstack). And it has
 * neither of the directives noescape and nocallback, which are two more calls each time
 * (cgoNoCallback): arrays come through the methods of interfaces, so Go has them on its heap
 * anyway. Together these were 11 of the 55 ns that a post of one request took.
 */

/* By whichever of the two below the queue pair has; see posted. qp is a struct rd_qp *. */
void rd_post_send(uintptr_t qp, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges);
/* By ibv_post_send: of a chain with an error the first part is accepted (chain.c). */
void rd_post_chain(struct rd_qp *qp, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges);
/* By ibv_wr_start and its kin: all is accepted, or nothing (batch.c). */
void rd_post_batch(struct rd_qp *qp, const struct rd_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges);

/* See posted. queue is a struct rd_recvq *. */
void rd_post_recv(uintptr_t queue, const struct rd_recv_wr *wrs, uint32_t n, const struct ibv_sge *sges, uint32_t num_sges);

/* What polling needs to know of a CQ. */
struct rd_cq {
	struct ibv_cq *cq;
	uint32_t inv_flags; /* of a work completion, that mean IBV_WC_WITH_INV */
	uint64_t calls;     /* how often rd_poll was called */
	int32_t polled;     /* how many completions it stored; negative: the CQ is broken */
	int32_t events;     /* how many rd_arm took off the channel */
};
/* See polled. cq is a struct rd_cq *. */
void rd_poll(uintptr_t cq, struct rd_completion *out, uint32_t n);

/* --- objects (verbs.c) --- */

struct rd_caps {
	uint32_t max_sge, max_sge_rd, max_qp_wr, max_cqe, max_srq_wr;
	uint32_t max_mr, max_mw, max_rd_atom, max_init_rd_atom;
	uint32_t windows; /* 0 none, 1 type 2A, 2 type 2B */
	uint32_t mem_mgt_extensions;
	uint32_t atomics;
	uint32_t iwarp, ethernet;
	uint32_t on_demand; /* ODP for all that is posted */
	uint32_t max_msg;
	uint64_t max_mr_size;
	char firmware[64];
};
int rd_query_caps(struct ibv_context *ctx, struct rd_caps *out);
uint32_t rd_probe_inline(struct ibv_context *ctx);
/* Tells whether batch posting of the given operations is offered. */
int rd_probe_batch(struct ibv_context *ctx, uint32_t ops);

/* Makes what keeps libsiw from failing now and then; see verbs.c. NULL: it couldn't. */
struct ibv_cq *rd_cover_key(struct ibv_context *ctx);

int rd_nonblock(int fd);
int rd_create_cq(struct ibv_context *ctx, int entries, uint64_t owner, struct ibv_comp_channel **channel,
		 struct ibv_cq **cq);
/* Arms cq, a struct rd_cq *. Takes what is on its channel before, due at most; see events. */
int rd_arm(uintptr_t cq, struct ibv_comp_channel *channel, int due);
/* Takes events off the channel without waiting, max at most, and returns how many. */
int rd_cq_events(struct ibv_comp_channel *channel, int max);
/* Sleeps until the channel has an event, alarm is readable, or milliseconds have passed; then as rd_cq_events. */
int rd_doze(struct ibv_comp_channel *channel, int alarm, int max, int ms);

int rd_alloc_pd(struct ibv_context *ctx, struct ibv_pd **pd);
int rd_reg_mr(struct ibv_pd *pd, uint64_t addr, uint64_t length, int access, struct ibv_mr **mr);
int rd_alloc_window(struct ibv_pd *pd, struct ibv_mw **mw);
int rd_create_srq(struct ibv_pd *pd, uint32_t *max_wr, uint32_t *max_sge, struct ibv_srq **srq);

struct rd_qp_caps {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_data;
};
/*
 * Makes id's queue pair. ops are the operations (bit per RD_OP) that batch posting
 * is wanted for; *ex is NULL where the provider doesn't have it for all of them.
 */
int rd_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *scq, struct ibv_cq *rcq,
		 struct ibv_srq *srq, uint64_t owner, uint32_t ops, struct rd_qp_caps *caps, struct ibv_qp_ex **ex);
int rd_qp_error(struct ibv_qp *qp);

struct rd_qp_attr {
	int32_t state; /* enum ibv_qp_state */
	uint32_t rd_atomic, dest_rd_atomic;
	uint32_t min_rnr_timer; /* as encoded; not on iWARP */
};
int rd_query_qp(struct ibv_qp *qp, struct rd_qp_attr *out);

/* How long a peer is asked to wait with a message that finds no receive: 0.64 ms (IBTA's table
 * of RNR NAK timer values), which is what perftest and most storage protocols take. */
#define RD_RNR_TIMER 12
/* Sets the timer of a queue pair that is in RTS. */
int rd_set_rnr_timer(struct ibv_qp *qp);

struct rd_async {
	int32_t type; /* enum ibv_event_type */
	uint32_t qpn;
	uint64_t owner; /* that of the CQ or queue pair it is about */
	uint32_t port;
};
/* Returns 0, EAGAIN if there is none, or another errno. The event is acknowledged. */
int rd_next_async(struct ibv_context *ctx, struct rd_async *out);

/* --- connection management (cm.c) --- */

struct rd_addr {
	uint8_t ip[16];
	uint32_t scope;
	uint16_t port; /* host order */
	uint8_t v6;
};

struct rd_cm_event {
	uint64_t owner; /* that of the listener for a request */
	struct rdma_cm_id *id;
	int32_t type; /* enum rdma_cm_event_type */
	int32_t status;
	uint8_t initiator_depth, responder_resources;
	uint8_t data_len;
	uint8_t data[256];
};
/*
 * Returns 0, EAGAIN if there is none, or another errno. The event is
 * acknowledged, so rdma_destroy_id never waits for us. The id of a request
 * gets new_owner.
 */
int rd_next_cm(struct rdma_event_channel *channel, uint64_t new_owner, struct rd_cm_event *out);

struct rd_conn_param {
	const void *data;
	uint8_t data_len;
	uint8_t initiator_depth, responder_resources;
	uint8_t retry_count, rnr_retry_count;
};
int rd_create_id(struct rdma_event_channel *channel, uint64_t owner, struct rdma_cm_id **id);
int rd_resolve_addr(struct rdma_cm_id *id, const struct rd_addr *src, const struct rd_addr *dst, int timeout_ms);
int rd_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int rd_listen(struct rdma_cm_id *id, const struct rd_addr *addr, int backlog);
int rd_connect(struct rdma_cm_id *id, const struct rd_conn_param *p);
int rd_accept(struct rdma_cm_id *id, const struct rd_conn_param *p);
int rd_reject(struct rdma_cm_id *id, const void *data, uint8_t len);
int rd_disconnect(struct rdma_cm_id *id);
int rd_destroy_id(struct rdma_cm_id *id);
int rd_set_option(struct rdma_cm_id *id, int option, uint8_t value);
void rd_local_addr(struct rdma_cm_id *id, struct rd_addr *out);
void rd_remote_addr(struct rdma_cm_id *id, struct rd_addr *out);

/* Makes the result of a verbs call a positive errno, or 0. */
int rd_errno(int rc);
/* The same of a post, which doesn't set errno: ibv_post_send(3) returns it, or, of siw, its
 * negative; mthca says -1 to whatever is wrong. */
int rd_post_errno(int rc);

#endif
