package core

import (
	"rdmarw/ulp/nvmeof/nvme"
)

// Action is what is to be done about a command.
type Action uint8

// Actions.
const (
	// Answer at once, with Status and Result.
	Answer Action = iota
	// Connect: fetch the data, then Directory.Connect.
	Connect
	// Fill: have Controller.Fill make the data, then give it to the host.
	Fill
	// Hold: no answer until there is an event.
	Hold
	// AbortHeld: answer the command that was held under the id Result&0xFFFF, if there
	// is one, with AbortRequested; then this one.
	AbortHeld

	// ReadBlocks to the host.
	ReadBlocks
	// WriteBlocks fetched from the host.
	WriteBlocks
	// CompareBlocks fetched from the host with those that are there.
	CompareBlocks
	// ZeroBlocks, Flush and Discard. The data of Discard are ranges: see CheckRanges.
	ZeroBlocks
	Flush
	Discard
)

// Plan is what is to be done about a command. Everything that can be checked without
// the data has been.
type Plan struct {
	Action Action
	Status nvme.Status
	Result uint64
	Data   Data
	// Namespace is the position of the namespace in its subsystem; LBA, Blocks, FUA and
	// Deallocate are about it.
	Namespace       int
	LBA             uint64
	Blocks          uint32
	FUA, Deallocate bool
}

// Data is where a command's data is, or is to go.
type Data struct {
	// Len is its length in bytes; zero: there is none, and nothing else counts.
	Len uint32
	// InCapsule: it came with the command, Addr bytes behind it. Else it is at Addr of
	// the host's memory, under Key.
	InCapsule bool
	Addr      uint64
	Key       uint32
	// Invalidate asks to invalidate Key with the response. It is set whenever the
	// descriptor was a valid one that asks for it, without data too.
	Invalidate bool
}

// fail answers a command that must not be sent again.
func fail(s nvme.Status) Plan { return Plan{Status: s | nvme.DNR} }

// checkFlags refuses fused commands, and data that is not described by an SGL.
func checkFlags(cmd *nvme.Command) bool { return cmd.Flags == nvme.FlagSGL }

// checkSGL judges the command's descriptor: want bytes of data go in direction dir,
// inCapsule of which at most can have come with the command.
//
// It is the one place that stands between what a host writes into a descriptor and the
// device: the queue pair dies of one bad request.
func checkSGL(cmd *nvme.Command, dir nvme.Direction, want uint64, most, inCapsule int) (Data, nvme.Status) {
	d := &cmd.SGL
	switch d.Type {
	case nvme.SGLKeyed, nvme.SGLKeyedInvalidate:
		if uint64(d.Len) != want {
			return Data{}, nvme.SGLLengthInvalid | nvme.DNR
		}
		if want > uint64(most) {
			return Data{}, nvme.InvalidField | nvme.DNR // beyond MDTS
		}
		if d.Addr+want < d.Addr {
			return Data{}, nvme.SGLOffsetInvalid | nvme.DNR
		}
		return Data{Len: d.Len, Addr: d.Addr, Key: d.Key, Invalidate: d.Type == nvme.SGLKeyedInvalidate && want > 0}, nvme.Success
	case nvme.SGLOffset:
		switch {
		case uint64(d.Len) != want:
			return Data{}, nvme.SGLLengthInvalid | nvme.DNR
		case want == 0:
			return Data{}, nvme.Success
		case dir != nvme.HostToTarget:
			return Data{}, nvme.InvalidField | nvme.DNR
		case d.Addr > uint64(inCapsule) || want > uint64(inCapsule)-d.Addr:
			return Data{}, nvme.SGLOffsetInvalid | nvme.DNR
		}
		return Data{Len: d.Len, InCapsule: true, Addr: d.Addr}, nvme.Success
	case nvme.SGLLastSegmentOffset:
		return Data{}, nvme.InvalidSGLCount | nvme.DNR // MSDBD is 1
	}
	return Data{}, nvme.SGLTypeInvalid | nvme.DNR
}

// withData makes a plan that has data, or fails.
func withData(p Plan, cmd *nvme.Command, dir nvme.Direction, want uint64, most, inCapsule int) Plan {
	data, status := checkSGL(cmd, dir, want, most, inCapsule)
	if status != nvme.Success {
		return Plan{Status: status}
	}
	p.Data = data
	return p
}

// PlanIO decides about a command on a connected I/O queue, other than fabrics
// commands. inCapsule is how many bytes came with it.
func PlanIO(sub *Subsystem, lim *Limits, cmd *nvme.Command, inCapsule int) Plan {
	if !checkFlags(cmd) {
		return fail(nvme.InvalidField)
	}
	var p Plan
	switch cmd.Opcode {
	case nvme.Read:
		p.Action = ReadBlocks
	case nvme.Write:
		p.Action = WriteBlocks
	case nvme.Compare:
		p.Action = CompareBlocks
	case nvme.WriteZeroes:
		p.Action = ZeroBlocks
	case nvme.Flush:
		p.Action = Flush
	case nvme.DatasetManagement:
		p.Action = Discard
	default:
		return fail(nvme.InvalidOpcode)
	}
	p.Namespace = sub.Find(cmd.NSID)
	if p.Namespace < 0 {
		return fail(nvme.InvalidNamespace)
	}
	ns := &sub.Namespaces[p.Namespace]
	if ns.ReadOnly && p.Action != ReadBlocks && p.Action != CompareBlocks && p.Action != Flush {
		return fail(nvme.NamespaceProtected)
	}
	switch p.Action {
	case Flush:
		return withData(p, cmd, nvme.NoData, 0, 0, 0)
	case Discard:
		if cmd.CDW11&nvme.DSMDeallocate == 0 || !ns.Discards {
			p.Blocks = 0 // hints about how the blocks are used, which nobody here takes
		} else {
			p.Blocks = uint32(cmd.Ranges())
		}
		// Linux describes a page, however few the ranges. What is needed is fetched.
		need := uint32(cmd.Ranges() * nvme.RangeLen)
		if cmd.SGL.Len < need {
			return fail(nvme.SGLLengthInvalid)
		}
		p = withData(p, cmd, nvme.HostToTarget, uint64(cmd.SGL.Len), lim.MaxTransfer, inCapsule)
		p.Data.Len = min(p.Data.Len, need)
		return p
	}
	p.LBA, p.Blocks = cmd.LBA(), cmd.Blocks()
	if p.LBA > ns.Blocks || uint64(p.Blocks) > ns.Blocks-p.LBA {
		return fail(nvme.LBAOutOfRange)
	}
	p.FUA = cmd.CDW12&nvme.FUA != 0
	n := uint64(p.Blocks) << ns.Shift
	switch p.Action {
	case ZeroBlocks:
		p.Deallocate = cmd.CDW12&nvme.Deallocate != 0
		return withData(p, cmd, nvme.NoData, 0, 0, 0)
	case ReadBlocks:
		return withData(p, cmd, nvme.TargetToHost, n, lim.MaxTransfer, 0)
	}
	return withData(p, cmd, nvme.HostToTarget, n, lim.MaxTransfer, inCapsule)
}

// RangeAt returns a range of a Dataset Management's data, or the status of a bad one.
// The data is the host's: every range is to be judged.
func RangeAt(ns *Namespace, data []byte, i int) (nvme.Range, nvme.Status) {
	var r nvme.Range
	if r.Decode(data[i*nvme.RangeLen:]) != nil {
		return r, nvme.SGLLengthInvalid | nvme.DNR
	}
	if r.LBA > ns.Blocks || uint64(r.Blocks) > ns.Blocks-r.LBA {
		return r, nvme.LBAOutOfRange | nvme.DNR
	}
	return r, nvme.Success
}
