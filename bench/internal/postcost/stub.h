/* A provider that copies, and the C program that packages are compared with. */
#ifndef RDMARW_POSTCOST_H
#define RDMARW_POSTCOST_H

#include <stdint.h>
#include <infiniband/verbs.h>

/* A transfer that a program has to make. */
struct pc_transfer {
	uint64_t local, remote;
	uint32_t length, lkey, rkey;
};

/* Returns a queue pair of a context whose post_send copies requests into a ring. */
struct ibv_qp *pc_stub(void);
void pc_free(struct ibv_qp *qp);
/* A sum over the ring: both sides must have posted the same. */
uint64_t pc_sum(const struct ibv_qp *qp);

/* Builds and posts a chain of WRITEs, the last one signaled, rounds times. Returns
 * nanoseconds, or -1. */
int64_t pc_post(struct ibv_qp *qp, const struct pc_transfer *t, uint32_t n, uint32_t rounds);

/* Does nothing, with the arguments of a post. */
void pc_empty(uintptr_t qp, const struct pc_transfer *wrs, uint32_t n, const struct pc_transfer *sges, uint32_t num_sges);
/* Posts a chain that is there. Pointers are numbers, as in package ibverbs. */
int pc_post_filled(uintptr_t qp, uintptr_t wrs);

#endif
