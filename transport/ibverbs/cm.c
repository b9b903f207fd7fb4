//go:build ibverbs && linux && cgo

/* Connection management. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include "shim.h"

static int result(int rc)
{
	if (rc == 0)
		return 0;
	return errno ? (errno < 0 ? -errno : errno) : EIO;
}

static void to_sockaddr(const struct rd_addr *a, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	if (a->v6) {
		struct sockaddr_in6 *s = (struct sockaddr_in6 *)out;

		s->sin6_family = AF_INET6;
		s->sin6_port = htons(a->port);
		s->sin6_scope_id = a->scope;
		memcpy(&s->sin6_addr, a->ip, 16);
	} else {
		struct sockaddr_in *s = (struct sockaddr_in *)out;

		s->sin_family = AF_INET;
		s->sin_port = htons(a->port);
		memcpy(&s->sin_addr, a->ip, 4);
	}
}

static void from_sockaddr(const struct sockaddr *in, struct rd_addr *a)
{
	memset(a, 0, sizeof(*a));
	if (in->sa_family == AF_INET6) {
		const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)in;

		a->v6 = 1;
		a->port = ntohs(s->sin6_port);
		a->scope = s->sin6_scope_id;
		memcpy(a->ip, &s->sin6_addr, 16);
	} else if (in->sa_family == AF_INET) {
		const struct sockaddr_in *s = (const struct sockaddr_in *)in;

		a->port = ntohs(s->sin_port);
		memcpy(a->ip, &s->sin_addr, 4);
	}
}

int rd_next_cm(struct rdma_event_channel *channel, uint64_t new_owner, struct rd_cm_event *out)
{
	struct rdma_cm_event *ev;
	const struct rdma_conn_param *p;

	for (;;) {
		errno = 0;
		if (rdma_get_cm_event(channel, &ev) == 0)
			break;
		if (errno != EINTR)
			return result(-1);
	}
	out->owner = (uintptr_t)ev->id->context;
	out->id = ev->id;
	out->type = ev->event;
	out->status = ev->status;
	p = &ev->param.conn; /* zeros for events that have none */
	out->initiator_depth = p->initiator_depth;
	out->responder_resources = p->responder_resources;
	out->data_len = p->private_data ? p->private_data_len : 0;
	memcpy(out->data, p->private_data ? p->private_data : "", out->data_len);
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		ev->id->context = (void *)(uintptr_t)new_owner;
	rdma_ack_cm_event(ev);
	return 0;
}

int rd_create_id(struct rdma_event_channel *channel, uint64_t owner, struct rdma_cm_id **id)
{
	errno = 0;
	return result(rdma_create_id(channel, id, (void *)(uintptr_t)owner, RDMA_PS_TCP));
}

int rd_resolve_addr(struct rdma_cm_id *id, const struct rd_addr *src, const struct rd_addr *dst, int timeout_ms)
{
	struct sockaddr_storage s, d;

	if (src)
		to_sockaddr(src, &s);
	to_sockaddr(dst, &d);
	errno = 0;
	return result(rdma_resolve_addr(id, src ? (struct sockaddr *)&s : NULL, (struct sockaddr *)&d, timeout_ms));
}

int rd_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	errno = 0;
	return result(rdma_resolve_route(id, timeout_ms));
}

int rd_listen(struct rdma_cm_id *id, const struct rd_addr *addr, int backlog)
{
	struct sockaddr_storage s;

	to_sockaddr(addr, &s);
	errno = 0;
	if (rdma_bind_addr(id, (struct sockaddr *)&s))
		return result(-1);
	errno = 0;
	return result(rdma_listen(id, backlog));
}

static struct rdma_conn_param param(const struct rd_conn_param *p)
{
	struct rdma_conn_param out = {
		.private_data = p->data,
		.private_data_len = p->data_len,
		.initiator_depth = p->initiator_depth,
		.responder_resources = p->responder_resources,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry_count,
		.flow_control = 1,
	};
	return out;
}

int rd_connect(struct rdma_cm_id *id, const struct rd_conn_param *p)
{
	struct rdma_conn_param q = param(p);

	errno = 0;
	return result(rdma_connect(id, &q));
}

int rd_accept(struct rdma_cm_id *id, const struct rd_conn_param *p)
{
	struct rdma_conn_param q = param(p);

	errno = 0;
	return result(rdma_accept(id, &q));
}

int rd_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	errno = 0;
	return result(rdma_reject(id, data, len));
}

int rd_disconnect(struct rdma_cm_id *id)
{
	errno = 0;
	return result(rdma_disconnect(id));
}

int rd_destroy_id(struct rdma_cm_id *id)
{
	errno = 0;
	return result(rdma_destroy_id(id));
}

int rd_set_option(struct rdma_cm_id *id, int option, uint8_t value)
{
	errno = 0;
	return result(rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof(value)));
}

void rd_local_addr(struct rdma_cm_id *id, struct rd_addr *out)
{
	from_sockaddr(rdma_get_local_addr(id), out);
}

void rd_remote_addr(struct rdma_cm_id *id, struct rd_addr *out)
{
	from_sockaddr(rdma_get_peer_addr(id), out);
}
