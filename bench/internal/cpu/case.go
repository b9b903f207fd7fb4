package cpu

import (
	"fmt"

	"rdmarw/rw"
	"rdmarw/transport"
)

const (
	pageSize = 4096
	// sgeLimit and pageLimit are those of the devices: of mlx5, and of what rw.c uses at
	// most for one registration.
	sgeLimit  = 30
	pageLimit = 256
)

// Case is what is measured.
type Case struct {
	// Op and Pieces describe the transfer; each piece is a page, apart from the others.
	Op     rw.Op
	Pieces int
	// FastReg registers the pieces by work requests in the chain (rw.c: force_mr), and
	// leaves the registration valid until its next use. Otherwise SGEs name the pieces.
	FastReg bool
	// Pool takes one registration from the pool, and puts it back. Nothing is
	// transferred.
	Pool bool
	// LinuxNS is what Linux takes for the like of it. See [Linux].
	LinuxNS int
}

// Linux says where the times of Linux are from.
const Linux = `rw.c and mr_pool.c of Linux 6.12, compiled in user space (gcc -O2) on a machine of this kind: init, post and
destroy; addresses mapped already, no credits, no dispatch of completions, and a null post that only walks the chain`

// Cases are all of them.
var Cases = []Case{
	{Op: rw.Read, Pieces: 1, LinuxNS: 19},
	{Op: rw.Write, Pieces: 1, LinuxNS: 19},
	{Op: rw.Read, Pieces: 16, LinuxNS: 137},
	{Op: rw.Write, Pieces: 16, LinuxNS: 137},
	{Op: rw.Read, Pieces: 64, LinuxNS: 309},
	{Op: rw.Write, Pieces: 64, LinuxNS: 309},
	{Op: rw.Read, Pieces: 256, LinuxNS: 927},
	{Op: rw.Write, Pieces: 256, LinuxNS: 927},
	{Op: rw.Read, Pieces: 1, FastReg: true, LinuxNS: 97},
	{Op: rw.Read, Pieces: 256, FastReg: true, LinuxNS: 2007},
	{Op: rw.Read, Pieces: 1024, FastReg: true, LinuxNS: 8132},
	{Pool: true, LinuxNS: 21},
}

// String names the case.
func (c Case) String() string {
	switch {
	case c.Pool:
		return "pool get+put"
	case c.FastReg:
		return fmt.Sprintf("%v %d, fast-reg", c.Op, c.Pieces)
	}
	return fmt.Sprintf("%v %d, direct", c.Op, c.Pieces)
}

// policy is that of the case's endpoint.
func (c Case) policy() rw.Policy { return rw.Policy{ForceRegistration: c.FastReg} }

// WRs is how many requests the case takes: of a registration, the invalidation of
// its last use, the FAST_REG, and the READ.
func (c Case) WRs() int {
	switch {
	case c.Pool:
		return 0
	case c.FastReg:
		return 3 * ((c.Pieces + pageLimit - 1) / pageLimit)
	}
	return (c.Pieces + sgeLimit - 1) / sgeLimit
}

// caps are those of the case's device.
func (c Case) caps() transport.Caps {
	caps := transport.Caps{
		Device: "null0", Protocol: transport.InfiniBand,
		MaxSendSGE: sgeLimit, MaxRecvSGE: sgeLimit, MaxSGERead: sgeLimit,
		MaxSendWR: 1 << 15, MaxRecvWR: 1 << 15, MaxCQE: 1 << 22, MaxMsg: 1 << 30,
		InitiatorDepth: 16, ResponderResources: 16, MaxMRSize: 1 << 46,
	}
	if c.FastReg || c.Pool {
		caps.FastReg = transport.FastRegCaps{MaxPages: pageLimit, PageSizes: pageSize}
		caps.LocalInv[transport.FastMR] = transport.InvWorks
	}
	return caps
}
