// Package rawverbs lets measurements of this module get below package ibverbs,
// which sets its variables when it is built for real devices.
package rawverbs

import (
	"unsafe"

	"rdmarw/transport"
)

var (
	// Wrap makes a queue pair of package ibverbs, connected as far as it knows, over
	// a struct ibv_qp of somebody else's. It is good for posting only. The caller frees
	// the struct, after the last post.
	Wrap func(qp unsafe.Pointer, caps transport.QueueCaps) (transport.QP, error)
	// QP returns the struct ibv_qp of a queue pair of package ibverbs.
	QP func(q transport.QP) unsafe.Pointer
)
